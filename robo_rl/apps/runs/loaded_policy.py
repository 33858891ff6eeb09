"""A trained policy, ready to act: from a policy folder, a run or a bundle."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from policies.checkpoint import POLICY_FILE, check_compatible, load_policy, read_policy_json
from policies.deploy.bundle import MANIFEST, check_env, load_bundle
from policies.deploy.runner import OnnxPolicy
from policies.registry import SavedPolicy
from robo_rl.apps.runs.run_dir import RunDir
from robo_rl.conf.transfer import TransferConfig
from robo_rl.core.errors import CheckpointError, ConfigError
from robo_rl.core.files.describe_path import describe_path
from robo_rl.core.protocols import ChunkPolicy, Obs
from robo_rl.core.provenance import cores
from robo_rl.core.spec import EnvSpec


@dataclass(frozen=True)
class LoadedPolicy:
    """A policy, where it came from and how it was meant to be run."""

    folder: Path
    policy: ChunkPolicy
    env: str  # name of the environment it was made for
    noise: float  # scale of its initial noise: 1 its own N(0, I), 0 none

    def check(self, env: EnvSpec) -> None:
        """Raise CheckpointError, with the reason, when the policy does not fit `env`."""
        if (self.folder / MANIFEST).is_file():
            check_env(load_bundle(self.folder), env)
        else:
            check_compatible(self.policy, env)


def open_policy(path: str | Path, device: torch.device) -> LoadedPolicy:
    """The policy in a policy folder, in the `policy/` of a run, or in a bundle. Raises CheckpointError for
    others.
    """
    folder = find_policy(path)
    if (folder / MANIFEST).is_file():
        bundle = load_bundle(folder)
        onnx = OnnxPolicy(bundle, "cuda" if device.type == "cuda" else "cpu")
        return LoadedPolicy(folder, onnx, bundle.env.name, 0.0 if bundle.noise == "zero" else 1.0)
    policy: ChunkPolicy = load_policy(folder, device)
    if device.type != "cpu":
        policy = OnDevice(policy, device)
    return LoadedPolicy(folder, policy, trained_env_spec(folder).name, trained_noise(folder))


def find_policy(path: str | Path) -> Path:
    """The folder that holds the policy: `path` itself, or its `policy/`."""
    for folder in (Path(path), Path(path) / "policy"):
        if (folder / POLICY_FILE).is_file() or (folder / MANIFEST).is_file():
            return folder
    raise CheckpointError(
        f"{path} {describe_path(Path(path))}, and holds no policy: neither {POLICY_FILE} nor {MANIFEST} was found "
        "there. Give a run that is done, a policy folder, such as runs/<name>/policy, or a bundle."
    )


def trained_env_spec(folder: Path) -> EnvSpec:
    """The contract of the environment or dataset that a policy was trained on, its base's when it has one."""
    data = read_policy_json(folder)
    if (spec := data["env"] or _nested_env(data["config"])) is None:
        raise CheckpointError(
            f"{folder / POLICY_FILE} holds no environment's contract. Train and save the policy again."
        )
    return EnvSpec.from_json(spec)


def trained_noise(folder: Path) -> float:
    """Scale of the initial noise that a policy folder was trained to run with; 1 where it does not say."""
    return float(read_policy_json(folder)["train"].get("noise", 1.0))


def _nested_env(config: dict[str, Any]) -> dict[str, Any] | None:
    """A policy built on another one keeps that one's contract inside its own configuration."""
    for key, value in config.items():
        if isinstance(value, dict):
            if key == "env":
                return value
            if (found := _nested_env(value)) is not None:
                return found
    return None


def flight_policy(config: TransferConfig, verb: str) -> tuple[Path, Path, SavedPolicy]:
    """(what was given, the policy's folder, the policy), from a run, one of its policy folders, or a bundle.

    verb: the one that trained it. Raises ConfigError where not exactly one of `run` and `bundle` is given.
    """
    if (config.run is None) == (config.bundle is None):
        raise ConfigError(f"Give either run=<folder of robo-rl {verb}> or bundle=<folder>, and not both.")
    given = Path(config.run or config.bundle or "")
    folder = find_policy(given)
    if (folder / MANIFEST).is_file():
        load_bundle(folder)  # checks every file against the manifest
    return given, folder, load_policy(folder)


def trained_settings(given: Path, folder: Path, schema: type[Any], verb: str) -> Any:
    """Settings of the run that the policy lies in; of a bundle that was moved away, those that it carries
    itself.

    schema: the verb's dataclass, of which one is returned. Raises CheckpointError where nothing tells them.
    """
    for place in (given, folder, folder.parent):
        if (place / "config.yaml").is_file():
            saved = RunDir(place).config()
            break
    else:
        saved = read_policy_json(folder)["train"].get("settings")
    if saved is None:
        raise CheckpointError(
            f"{folder} does not tell how it was trained. Give run=<the folder of robo-rl {verb}>."
        )
    known = {item.name for item in fields(schema)}
    return schema(**{key: value for key, value in saved.items() if key in known})


def worker_count(asked: int | None, num_envs: int) -> int:
    """Simulator processes: as many as asked for; when none is said, one per core, and no process for a single
    lane.
    """
    if asked is not None:
        return asked
    return 0 if num_envs == 1 or cores() == 1 else min(cores(), num_envs)


class OnDevice:
    """A policy on a GPU behind CPU tensors: environments and executors stay where the simulators are."""

    def __init__(self, policy: ChunkPolicy, device: torch.device) -> None:
        self._policy, self._device = policy, device
        self.obs_spec, self.action_spec = policy.obs_spec, policy.action_spec
        self.obs_steps, self.chunk, self.execute = policy.obs_steps, policy.chunk, policy.execute

    def features(self, obs: Obs) -> Float[Tensor, "b f"]:
        return self._policy.features(self._there(obs)).cpu()

    def sample(self, obs: Obs, noise: Float[Tensor, "b Tp a"]) -> Float[Tensor, "b Tp a"]:
        return self._policy.sample(self._there(obs), noise.to(self._device)).cpu()

    def sample_from(
        self, features: Float[Tensor, "b f"], noise: Float[Tensor, "b Tp a"]
    ) -> Float[Tensor, "b Tp a"]:
        return self._policy.sample_from(features.to(self._device), noise.to(self._device)).cpu()

    def refine(self, obs: Obs, action: Float[Tensor, "b a"]) -> Float[Tensor, "b a"]:
        return self._policy.refine(self._there(obs), action.to(self._device)).cpu()

    def _there(self, obs: Obs) -> Obs:
        return {key: value.to(self._device) for key, value in obs.items()}
