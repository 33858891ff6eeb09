"""Policy folders: {policy.json, weights.safetensors}, all data for acting and no code.

policy.json = {"format": 1, "kind", "config", "env", "train", "weights_crc32"}. The checksum links the two
files: a folder whose files were written at different times is refused.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn

from policies.registry import SavedPolicy, build
from policies.saved_files import POLICY_FILE, WEIGHTS_FILE
from robo_rl.core.errors import CheckpointError, DataError
from robo_rl.core.files.durable import read_json, write_atomic, write_json
from robo_rl.core.protocols import ChunkPolicy
from robo_rl.core.spec import EnvSpec, dtypes_conflict
from robo_rl.core.text.instruction import INSTRUCTION
from robo_rl.core.text.named_numbers import units_conflict

FORMAT = 1
RATE_SLACK = 1e-3  # largest share by which rates differ that count as equal


def save_policy(folder: Path, policy: SavedPolicy, train: Mapping[str, Any] | None = None) -> None:
    """Write the policy. train: JSON note on its origin (data, steps, commit, measured success)."""
    assert isinstance(policy, nn.Module)
    config = policy.config()
    env = config.pop("env", None)
    weights = pack(policy.state_dict())
    write_atomic(folder / WEIGHTS_FILE, weights)
    write_json(
        folder / POLICY_FILE,
        {
            "format": FORMAT,
            "kind": policy.kind,
            "config": config,
            "env": env,
            "train": dict(train or {}),
            "weights_crc32": zlib.crc32(weights),
        },
    )


def load_policy(folder: Path, device: str | torch.device = "cpu") -> SavedPolicy:
    """Policy of a folder, frozen and in eval mode. Raises CheckpointError as `load_to_train` does."""
    policy = load_to_train(folder)
    assert isinstance(policy, nn.Module)
    policy.to(device).eval().requires_grad_(False)
    return policy


def load_to_train(folder: Path) -> SavedPolicy:
    """Policy of a folder on the CPU; gradients are on for the weights that its kind trains.

    Raises CheckpointError for a broken file, another format version, or tensors that do not fit.
    """
    data = read_policy_json(folder)
    config = data["config"] if data["env"] is None else {**data["config"], "env": data["env"]}
    weights = _read_weights(folder / WEIGHTS_FILE, data["weights_crc32"])
    policy = build({"kind": data["kind"], "config": config})
    load_weights(policy, weights, f"{folder / WEIGHTS_FILE}")
    assert isinstance(policy, SavedPolicy)
    return policy


def read_policy_json(folder: Path) -> dict[str, Any]:
    """Checked content of policy.json: origin, measured success and contract, without the weights."""
    path = folder / POLICY_FILE
    try:
        data = read_json(path)
    except DataError as error:
        raise CheckpointError(f"{folder} is not a policy folder: {error}") from error
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        found = data.get("format") if isinstance(data, dict) else type(data).__name__
        raise CheckpointError(
            f"{path} has format {found!r}, expected {FORMAT}. Load it with the version of robo-rl that wrote "
            "it, or train and save the policy again."
        )
    if missing := {"kind", "config", "env", "weights_crc32"} - data.keys():
        raise CheckpointError(
            f"{path} lacks {sorted(missing)}. It was edited or truncated; save the policy again."
        )
    return data


def load_weights(policy: nn.Module, weights: Mapping[str, Tensor], source: str) -> None:
    """load_state_dict that raises CheckpointError for missing, unexpected and mis-shaped tensors."""
    expected = policy.state_dict()
    _refuse(source, "lacks the tensors", expected.keys() - weights.keys())
    _refuse(source, "holds unexpected tensors", weights.keys() - expected.keys())
    wrong = [
        f"{name} {tuple(weights[name].shape)} instead of {tuple(tensor.shape)}"
        for name, tensor in expected.items()
        if weights[name].shape != tensor.shape
    ]
    _refuse(source, "holds tensors of other shapes:", wrong)
    policy.load_state_dict(dict(weights))


def check_compatible(policy: ChunkPolicy, env: EnvSpec, dataset: str | None = None) -> None:
    """Raise CheckpointError that names the first key, shape, unit or action limit of `env` that does not fit.

    dataset: folder whose contract `env` is, whose rate must fit, too; None: `env` is the contract of an
    environment, in which a policy may be measured at another rate (`other_rate`).
    """
    source, use = env.name, "environment"
    remedy = "Use the task that it was trained for, with the same options."
    if dataset is not None:
        source, use = f"the dataset {dataset} of {env.name}", "dataset"
        remedy = "Give a dataset of the task that it was trained for."
    trained = _trained_env(policy)
    where = f" in {trained.name}" if trained is not None else ""
    for key, array in policy.obs_spec.items():
        if key not in env.obs:
            raise CheckpointError(
                f"The policy was trained{where} and needs observation '{key}', but {source} offers "
                f"{sorted(env.obs)}. {_offer(key, use)}"
            )
        found = env.obs[key]
        if found.shape != array.shape or dtypes_conflict(found.dtype, array.dtype):
            raise CheckpointError(
                f"Observation '{key}' of {source} is {found.dtype} {found.shape}, but the policy was "
                f"trained{where} on {array.dtype} {array.shape}. {remedy}"
            )
        if units_conflict(found.unit, array.unit):
            raise CheckpointError(
                f"Observation '{key}' of {source} is in '{found.unit}', but the policy was trained{where} on "
                f"'{array.unit}'. The same number would mean another thing. {remedy}"
            )
    ours, theirs = policy.action_spec, env.action
    if ours.dim != theirs.dim:
        raise CheckpointError(
            f"Actions of {source} have dimension {theirs.dim}, but the policy was trained{where} for "
            f"dimension {ours.dim}. Use the action space that it was trained for."
        )
    if (ours.low, ours.high) != (theirs.low, theirs.high):
        raise CheckpointError(
            f"Actions of {source} have limits {theirs.low}..{theirs.high}, but the policy was trained{where} "
            f"for {ours.low}..{ours.high}. The same action would be another motion; use matching limits, "
            "by robo-rl train action_range=limits if these are the range of recorded actions."
        )
    if units_conflict(theirs.unit, ours.unit):
        raise CheckpointError(
            f"Actions of {source} are in '{theirs.unit}', but the policy was trained{where} on "
            f"'{ours.unit}'. The same action would be another motion. {remedy}"
        )
    if dataset is not None and trained is not None and (rates := other_rate(trained, env)):
        raise CheckpointError(
            f"{dataset} was recorded at {rates[1]:g} Hz, but the policy was trained{where} at {rates[0]:g} "
            f"Hz. The same action would last another time. {remedy}"
        )


def _offer(key: str, use: str) -> str:
    """What to do where this observation is missing. use: "environment" or "dataset"."""
    if key == INSTRUCTION and use == "environment":
        return (
            "Say what it is to do: evaluate instruction='...', in other verbs the environment's option "
            "env='<name>:instruction=...', and export instruction='...' for a robot."
        )
    return f"Use the {use} that it was trained for, or one with the same observations."


def other_rate(trained: EnvSpec, env: EnvSpec) -> tuple[float, float] | None:
    """(rate of the training, rate of `env`) [Hz] if they differ."""
    ours, theirs = trained.control_hz, env.control_hz
    return None if abs(theirs - ours) <= RATE_SLACK * ours else (ours, theirs)


def _trained_env(policy: object) -> EnvSpec | None:
    """Contract that a policy, or the base inside it, was trained on; None if it states none."""
    while policy is not None:
        if isinstance(env := getattr(policy, "env", None), EnvSpec):
            return env
        policy = getattr(policy, "base", None)
    return None


def pack(tensors: Mapping[str, Tensor]) -> bytes:
    """safetensors bytes of CPU copies of the tensors."""
    data: bytes = save({name: tensor.detach().cpu().clone().contiguous() for name, tensor in tensors.items()})
    return data


def unpack(data: bytes, source: str) -> dict[str, Tensor]:
    """Tensors of `pack`. Raises CheckpointError that names `source` for other bytes."""
    try:
        return load(data)
    except SafetensorError as error:
        raise CheckpointError(
            f"{source} is not a safetensors file ({error}). It is truncated; create it again."
        ) from error


def _read_weights(path: Path, crc32: int) -> dict[str, Tensor]:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise CheckpointError(
            f"{path} cannot be read ({error.strerror}). Copy the whole policy folder."
        ) from error
    weights = unpack(data, str(path))
    if zlib.crc32(data) != crc32:
        raise CheckpointError(
            f"{path} does not belong to the {POLICY_FILE} in its folder (checksum {zlib.crc32(data)}, "
            f"expected {crc32}). One of the two was replaced or damaged; copy both from the same place, or "
            "save the policy again."
        )
    return weights


def _refuse(source: str, what: str, names: set[str] | list[str]) -> None:
    if names:
        shown = sorted(names)
        more = f" and {len(shown) - 3} more" if len(shown) > 3 else ""
        raise CheckpointError(
            f"{source} {what} {', '.join(shown[:3])}{more}. It belongs to another policy or version; save it "
            "again."
        )
