"""Loading a trained policy: from a policy folder, a run, a checkpoint of a run, a bundle, or a server."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from policies.acting import LaneActor
from policies.checkpoint import check_compatible, load_policy, read_policy_json
from policies.deploy.bundle import MANIFEST, check_env, load_bundle
from policies.deploy.runner import OnnxPolicy
from policies.instructed_policy import InstructedPolicy
from policies.registry import SavedPolicy
from policies.remote.address import is_remote, parse_address
from policies.remote.policy import RemotePolicy
from policies.saved_files import POLICY_FILE
from policies.vocabulary import unread_words, vocabulary_in
from robo_rl.conf.transfer import TransferConfig
from robo_rl.core.conditioning import memory_shape, sample_with_moment
from robo_rl.core.errors import CheckpointError, ConfigError
from robo_rl.core.files.describe_path import not_a
from robo_rl.core.protocols import ChunkPolicy, Obs
from robo_rl.core.provenance import cores
from robo_rl.core.shapes import Float
from robo_rl.core.spec import EnvSpec
from robo_rl.core.text.instruction import with_instruction
from robo_rl.runs.run_dir import RunDir
from sim.registry import instruction_of


@dataclass(frozen=True)
class LoadedPolicy:
    """A trained policy with its folder, its environment and the scale of its noise."""

    folder: Path  # of a remote policy, `remote:<host>:<port>`
    policy: ChunkPolicy
    env: str  # name of the environment of its training
    noise: float  # scale of its initial noise: 1: N(0, I), 0: zero noise
    runtime: str = "torch on cpu"  # what runs it, for figures of time

    def __fspath__(self) -> str:
        """Its folder or address: a loaded policy can be given wherever a path of one is expected."""
        return str(self.folder)

    @cached_property
    def _actor(self) -> LaneActor:
        return LaneActor(self.policy, self.noise)

    def act(self, obs: Mapping[str, Any]) -> Float[Tensor, "n a"]:
        """Actions (n, a) for a batch of observations, in the units of the environment; call once per step.

        obs: arrays or tensors (n, *shape) by key, as the environment returns them.
        """
        return self._actor.act(obs)

    def reset(self, lanes: Any = None, seeds: Any = None) -> None:
        """Begin new episodes with the next observation: in these lanes, indices or a mask, or in all.

        seeds: of the noise, e.g. `info["next_seed"]`, which gives the actions of an evaluation; None: new.
        """
        self._actor.reset(lanes, seeds)

    def check(self, env: EnvSpec, given: str = "policy") -> None:
        """Raise CheckpointError, with the reason, if the policy does not fit `env`. given: the setting that
        names the policy.
        """
        if isinstance(self.policy, RemotePolicy):
            self.policy.check(env)
        elif (self.folder / MANIFEST).is_file():
            instructed = isinstance(self.policy, InstructedPolicy)
            check_env(load_bundle(self.folder), with_instruction(env) if instructed else env)
        else:
            check_fits(self.policy, self.folder, env, given)


def check_fits(
    policy: ChunkPolicy, folder: Path, env: EnvSpec, given: str, dataset: str | None = None
) -> None:
    """`check_compatible`; of a run of several embodiments, the error names the policy that fits.

    folder: of the policy. given: the setting that names it, such as base.
    """
    try:
        check_compatible(policy, env, dataset)
    except CheckpointError as error:
        instructed = isinstance(policy, InstructedPolicy)
        other = _of_another_embodiment(folder, with_instruction(env) if instructed else env)
        if other is None:
            raise
        raise CheckpointError(f"{error} The same run trained a policy that fits: {given}={other}") from None


def _of_another_embodiment(folder: Path, env: EnvSpec) -> Path | None:
    """Policy of the same run that fits `env`; None for a run of one embodiment, and if none fits."""
    run = RunDir(folder.parent if folder.name == "policy" else folder.parent.parent)
    for other in (run.policy, *sorted(run.embodiments.glob("*"))) if run.embodiments.is_dir() else ():
        if (other / POLICY_FILE).is_file() and other != folder:
            try:
                check_compatible(load_policy(other), env)
            except CheckpointError:
                continue
            return other
    return None


def open_policy(path: str | Path, device: torch.device) -> LoadedPolicy:
    """Policy of a policy folder, a run, a checkpoint (<run>@<step>), a bundle, or a server (remote:...).

    Raises CheckpointError for other paths, RemoteError for a server that cannot be used.
    """
    if is_remote(path):
        remote = RemotePolicy(parse_address(str(path)))
        place, contract = Path(f"remote:{remote.address}"), remote.contract
        return LoadedPolicy(
            place, remote, contract.env.name, contract.noise, f"{contract.runtime} at {remote.address}"
        )
    folder = find_policy(path)
    if (folder / MANIFEST).is_file():
        bundle = load_bundle(folder)
        onnx = OnnxPolicy(bundle, "cuda" if device.type == "cuda" else "cpu")
        noise = 0.0 if bundle.noise == "zero" else 1.0
        return LoadedPolicy(folder, onnx, bundle.env.name, noise, onnx.runtime)
    policy: ChunkPolicy = load_policy(folder, device)
    if device.type != "cpu":
        policy = OnDevice(policy, device)
    name, noise = trained_env_spec(folder).name, trained_noise(folder)
    return LoadedPolicy(folder, policy, name, noise, f"torch on {device}")


def own_env(policy: str | None, verb: str, *, others: bool = False) -> str:
    """Name of the environment in which a policy was trained, for a verb without env=.

    others: something else than a policy acts, so that the message does not advise one. Raises ConfigError
    without a policy, and the errors of `open_policy`.
    """
    if policy is None:
        advice = "" if others else ", or policy=..., whose own environment is then used"
        raise ConfigError(
            f"robo-rl {verb} needs env=... (environment, e.g. metaworld/peg-insert-side-v3; robo-rl info "
            f"lists all){advice}. See: robo-rl {verb} --help"
        )
    if is_remote(policy):
        with closing(RemotePolicy(parse_address(policy))) as remote:
            return remote.env.name
    folder = find_policy(policy)
    return load_bundle(folder).env.name if (folder / MANIFEST).is_file() else trained_env_spec(folder).name


def find_policy(path: str | Path) -> Path:
    """Folder of the policy: `path` itself, or its `policy/`.

    <run>@<step> names the policy of a checkpoint, as `robo-rl train` and `finetune` write it. Raises
    CheckpointError if there is no policy.
    """
    if is_remote(path):
        raise ConfigError(
            f"{path} is a policy that another process computes; here its files are needed. Give the policy "
            "folder, run or bundle that is served there."
        )
    run, at, step = str(path).rpartition("@")
    if at and step.isdecimal() and not Path(path).exists():
        return _checkpoint_policy(RunDir.open(run), int(step))
    for folder in (Path(path), Path(path) / "policy"):
        if (folder / POLICY_FILE).is_file() or (folder / MANIFEST).is_file():
            return folder
    if RunDir(Path(path)).encoder.is_dir():
        raise CheckpointError(
            f"{path} is a run of robo-rl pretrain, which makes a picture encoder and no policy. Train a "
            f"policy that starts from it: robo-rl train image.init={path}"
        )
    of_run = Path(path).parent if Path(path).name == "policy" else Path(path)
    if (of_run / "run.json").is_file():
        newest = newest_policy(RunDir(of_run))
        so_far = f"{newest} for its newest checkpoint" if newest else "another run"
        raise CheckpointError(
            f"{of_run} is a run without a policy, because it was stopped before its end, has failed or is "
            "still running. Continue a stopped one by the command that started it and resume=true, or give "
            f"{so_far}."
        )
    raise CheckpointError(
        f"{not_a(Path(path), 'a policy')} Give a finished run, a policy folder such as "
        "runs/<name>/policy, or a bundle."
    )


def newest_policy(run: RunDir) -> str:
    """What names the policy of a run for `find_policy`: the run, or its newest checkpoint; empty without
    any.
    """
    if (run.policy / POLICY_FILE).is_file():
        return str(run.path)
    newest = max((at for at, folder in run.steps() if _has_policy(folder)), default=None)
    return "" if newest is None else f"{run.path}@{newest}"


def _has_policy(checkpoint: Path) -> bool:
    """True if a checkpoint holds the policy of its step."""
    return (RunDir(checkpoint).policy / POLICY_FILE).is_file()


def _checkpoint_policy(run: RunDir, step: int) -> Path:
    """Policy folder in the checkpoint of `step`."""
    folders = dict(run.steps())
    there = sorted(at for at, folder in folders.items() if _has_policy(folder))
    if step in there:
        return RunDir(folders[step]).policy
    if not folders:
        find_policy(run.path)  # raises the reason if there is no final policy either
        raise CheckpointError(f"{run.path} holds no checkpoints. Give {run.path} for the final policy.")
    if not there:
        raise CheckpointError(
            f"The checkpoints of {run.path} hold no policy; those of robo-rl train and finetune do. Give "
            f"{run.path} for the final policy."
        )
    settings = run.config() if (run.path / "config.yaml").is_file() else {}
    trained = "data" in settings  # not fine-tuned, which keeps the newest two
    more = "; robo-rl train keep_checkpoints= keeps more of them" if trained else ""
    has = ", ".join(map(str, there))
    left = f"step {has} is left" if len(there) == 1 else f"steps {has} are left"
    found = f"a run deletes its older ones, and {left}" if step < there[0] else f"it has {has}"
    raise CheckpointError(f"{run.path} has no checkpoint of step {step}: {found}. Name one of these{more}.")


def unread_in(folder: Path, env: str, instruction: str | None = None) -> list[str]:
    """Words that the policy in `folder` does not know, of `instruction` or else of that in the name of the
    environment; none for a policy whose files are not here. Raises ConfigError if it knows no word of it.
    """
    words = instruction or instruction_of(env)
    if words is None or not (folder / POLICY_FILE).is_file():
        return []
    return unread_words(words, vocabulary_in(read_policy_json(folder)["config"]))


def trained_env_spec(folder: Path) -> EnvSpec:
    """Contract of the environment or dataset that a policy, or the base inside it, was trained on."""
    data = read_policy_json(folder)
    if (spec := data["env"] or _nested_env(data["config"])) is None:
        raise CheckpointError(
            f"{folder / POLICY_FILE} holds no contract of an environment. Train and save the policy again."
        )
    return EnvSpec.from_json(spec)


def trained_noise(folder: Path) -> float:
    """Scale of the initial noise that a policy was trained with; 1 without a note."""
    return float(read_policy_json(folder)["train"].get("noise", 1.0))


def _nested_env(config: dict[str, Any]) -> dict[str, Any] | None:
    """Contract in the configuration of a policy that is built on another one."""
    for key, value in config.items():
        if isinstance(value, dict):
            if key == "env":
                return value
            if (found := _nested_env(value)) is not None:
                return found
    return None


def flight_policy(config: TransferConfig, verb: str) -> tuple[Path, Path, SavedPolicy]:
    """(given path, policy folder, policy), from a run, one of its policy folders, or a bundle.

    verb: the verb that trains such policies. Raises ConfigError unless exactly one of `run` and `bundle` is
    given.
    """
    if (config.run is None) == (config.bundle is None):
        raise ConfigError(f"Give either run=<folder of robo-rl {verb}> or bundle=<folder>, and not both.")
    given = Path(config.run or config.bundle or "")
    folder = find_policy(given)
    if (folder / MANIFEST).is_file():
        load_bundle(folder)  # checks every file against the manifest
    return given, folder, load_policy(folder)


def trained_settings(given: Path, folder: Path, schema: type[Any], verb: str) -> Any:
    """Settings of the run that holds the policy, or those stored in a bundle that was moved.

    schema: the verb's dataclass; an instance is returned. Raises CheckpointError if there are no settings.
    """
    for place in (given, folder, folder.parent):
        if (place / "config.yaml").is_file():
            saved = RunDir(place).config()
            break
    else:
        saved = read_policy_json(folder)["train"].get("settings")
    if saved is None:
        raise CheckpointError(
            f"{folder} holds no training settings. Give run=<the folder of robo-rl {verb}>."
        )
    known = {item.name for item in fields(schema)}
    return schema(**{key: value for key, value in saved.items() if key in known})


def worker_count(num_workers: int | None, num_envs: int) -> int:
    """Number of simulator processes; None is one per core, and none for a single lane."""
    if num_workers is not None:
        return num_workers
    return 0 if num_envs == 1 or cores() == 1 else min(cores(), num_envs)


class OnDevice:
    """A policy on a GPU with inputs and outputs on the CPU, where simulators and executors are."""

    def __init__(self, policy: ChunkPolicy, device: torch.device) -> None:
        self._policy, self._device = policy, device
        self.obs_spec, self.action_spec = policy.obs_spec, policy.action_spec
        self.obs_steps, self.chunk, self.execute = policy.obs_steps, policy.chunk, policy.execute
        self.memory_shape = memory_shape(policy)

    def features(self, obs: Obs) -> Float[Tensor, "b f"]:
        return self._policy.features(self._there(obs)).cpu()

    def sample_with_moment(self, obs: Obs, noise: Float[Tensor, "b Tp a"]) -> tuple[Tensor, Tensor]:
        """(chunk, moment) of a policy with a memory; see `conditioning.sample_with_moment`."""
        chunk, moment = sample_with_moment(self._policy, self._there(obs), noise.to(self._device))
        return chunk.cpu(), moment.cpu()

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
