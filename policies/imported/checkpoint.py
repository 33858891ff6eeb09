"""Checkpoints of LeRobot (0.4 and later) as data: configuration, weights and statistics, checked.

A folder holds config.json, model.safetensors, and a pre- and a post-processor: a JSON list of steps, of which
the normaliser and its inverse have statistics in a safetensors file. LeRobot runs a feature without
statistics un-normalised; here a missing statistic, or one of another feature, is an error.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from robo_rl.core.errors import CheckpointError, DataError
from robo_rl.core.files.describe_path import not_a
from robo_rl.core.files.durable import read_json

CONFIG, WEIGHTS = "config.json", "model.safetensors"
PRE, POST = "policy_preprocessor.json", "policy_postprocessor.json"
ACTION, STATE, ENV_STATE = "action", "observation.state", "observation.environment_state"
NEEDED = {  # mode of normalisation -> statistics that it needs
    "IDENTITY": (),
    "MIN_MAX": ("min", "max"),
    "MEAN_STD": ("mean", "std"),
    "QUANTILES": ("q01", "q99"),
    "QUANTILE10": ("q10", "q90"),
}
BOOKKEEPING = (
    "timestamp",
    "index",
    "frame_index",
    "episode_index",
    "task_index",
    "next.",
    "observation.language",
)
_STEPS = {  # further steps of processors that do not change numbers
    PRE: ("rename_observations_processor", "to_batch_processor", "device_processor"),
    POST: ("device_processor",),
}
_NORMALIZERS = {PRE: "normalizer_processor", POST: "unnormalizer_processor"}


@dataclass(frozen=True)
class Feature:
    """An input or output of a policy. type: STATE, ENV, VISUAL or ACTION."""

    type: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class LerobotCheckpoint:
    """A checked checkpoint; weights are read by `weights()`."""

    folder: Path
    kind: str  # "diffusion", "act", ...
    config: dict[str, Any]
    inputs: dict[str, Feature]
    action: Feature
    modes: dict[str, str]  # type of a feature -> mode of its normalisation
    statistics: dict[str, dict[str, Tensor]]  # feature -> name -> values
    eps: float

    def mode(self, key: str) -> str:
        """Mode of normalisation of a feature."""
        feature = self.action if key == ACTION else self.inputs[key]
        return self.modes.get(feature.type, "IDENTITY")

    def weights(self) -> dict[str, Tensor]:
        """Tensors of model.safetensors."""
        return _tensors(self.folder / WEIGHTS)

    def number(self, key: str) -> int:
        """A whole number of at least 1 in config.json."""
        value = self.config.get(key)
        if type(value) is not int or value < 1:
            raise CheckpointError(f"{self.folder / CONFIG} has {key} = {value!r}, expected a whole number.")
        return value

    def center_and_scale(self, key: str) -> tuple[Tensor, Tensor]:
        """(center, scale) of (x - center) / scale, LeRobot's normalisation of this feature."""
        mode, found = self.mode(key), self.statistics.get(key, {})
        shape = self.action.shape if key == ACTION else self.inputs[key].shape
        if mode == "IDENTITY":
            return torch.zeros(shape), torch.ones(shape)
        first, second = (found[name].double() for name in NEEDED[mode])
        if mode == "MEAN_STD":  # the inverse uses std alone
            return first.float(), (second if key == ACTION else second + self.eps).float()
        span = second - first
        half = torch.where(span == 0, torch.full_like(span, self.eps), span) / 2
        return (first + half).float(), half.float()


def is_lerobot(folder: Path) -> bool:
    """True for a folder with LeRobot's configuration and weights."""
    return (folder / CONFIG).is_file() and (folder / WEIGHTS).is_file()


def read_checkpoint(folder: Path) -> LerobotCheckpoint:
    """Checkpoint of a folder. Raises CheckpointError, with what is missing or foreign."""
    if not is_lerobot(folder):
        raise CheckpointError(
            f"{not_a(folder, 'a checkpoint of LeRobot')} A checkpoint holds {CONFIG}, {WEIGHTS}, {PRE} and "
            f"{POST}, as in <output>/checkpoints/last/pretrained_model."
        )
    config = _json(folder / CONFIG)
    for file in (PRE, POST):
        if not (folder / file).is_file():
            raise CheckpointError(
                f"{folder} holds no {file}, so its normalisation is not known; a policy without it would run "
                "un-normalised. Migrate an older checkpoint with LeRobot's migrate_policy_normalization."
            )
    inputs = {
        key: _feature(folder, key, entry) for key, entry in _object(folder, config, "input_features").items()
    }
    outputs = {
        key: _feature(folder, key, entry) for key, entry in _object(folder, config, "output_features").items()
    }
    if list(outputs) != [ACTION] or not inputs:
        raise CheckpointError(
            f"{folder / CONFIG} has the outputs {sorted(outputs)}, expected 'action' alone."
        )
    if not isinstance(config.get("type"), str):
        raise CheckpointError(f"{folder / CONFIG} names no type of policy.")
    before, after = (_normalizer(folder, file) for file in (PRE, POST))
    read = LerobotCheckpoint(
        folder, config["type"], config, inputs, outputs[ACTION], before.modes, before.statistics, before.eps
    )
    _check_statistics(read)
    if after.modes.get("ACTION", "IDENTITY") != read.mode(ACTION) or after.eps != before.eps:
        raise CheckpointError(f"{folder}: {PRE} and {POST} normalise the action in different ways.")
    for name in NEEDED[read.mode(ACTION)]:
        theirs = after.statistics.get(ACTION, {}).get(name)
        if theirs is None or not theirs.equal(read.statistics[ACTION][name]):
            raise CheckpointError(
                f"{folder}: the statistic '{ACTION}.{name}' of {POST} is missing or differs from {PRE}'s. "
                "Copy the whole checkpoint again."
            )
    return read


@dataclass(frozen=True)
class _Normalizer:
    modes: dict[str, str]
    statistics: dict[str, dict[str, Tensor]]
    eps: float


def _normalizer(folder: Path, file: str) -> _Normalizer:
    """Normaliser of a processor, whose other steps must not change numbers."""
    steps = _json(folder / file).get("steps")
    listed = steps if isinstance(steps, list) and all(isinstance(step, dict) for step in steps) else []
    for step in listed:
        _check_step(folder / file, step)
    found = [step for step in listed if step["registry_name"] == _NORMALIZERS[file]]
    if len(found) != 1:
        raise CheckpointError(f"{folder / file} holds {len(found)} normalisers, expected one.")
    config, state = found[0].get("config"), found[0].get("state_file")
    if not isinstance(config, dict) or not isinstance(state, str) or Path(state).name != state:
        raise CheckpointError(f"{folder / file} names no file with the statistics of its normaliser.")
    if config.get("normalize_observation_keys") is not None:
        raise CheckpointError(f"{folder / file} normalises some observations only, which is not supported.")
    modes, eps = config.get("norm_map"), config.get("eps", 1e-8)
    if not isinstance(modes, dict) or any(mode not in NEEDED for mode in modes.values()):
        raise CheckpointError(f"{folder / file} has the normalisation {modes!r}; known: {', '.join(NEEDED)}.")
    if type(eps) is not float or not 0.0 < eps < 1.0:
        raise CheckpointError(f"{folder / file} has eps = {eps!r}, expected a small number.")
    statistics: dict[str, dict[str, Tensor]] = {}
    for name, tensor in _tensors(folder / state).items():
        key, _, statistic = name.rpartition(".")
        statistics.setdefault(key, {})[statistic] = tensor
    return _Normalizer(modes, statistics, eps)


def _check_step(file: Path, step: Mapping[str, Any]) -> None:
    """Raise CheckpointError for a step that changes numbers in a way that is not known here."""
    name, config = step.get("registry_name"), step.get("config")
    if name not in (*_STEPS[file.name], _NORMALIZERS[file.name]):
        raise CheckpointError(
            f"{file} holds the step {name!r}, whose effect is not known here. Known: "
            f"{', '.join((*_STEPS[file.name], _NORMALIZERS[file.name]))}."
        )
    if isinstance(config, dict) and config.get("rename_map"):
        raise CheckpointError(f"{file} renames observations; save the checkpoint without renaming.")


def _check_statistics(read: LerobotCheckpoint) -> None:
    """Raise CheckpointError unless every normalised feature has its statistics, and no other one is there."""
    shapes = {key: feature.shape for key, feature in read.inputs.items()} | {ACTION: read.action.shape}
    foreign = [key for key in read.statistics if key not in shapes and not key.startswith(BOOKKEEPING)]
    for key, shape in shapes.items():
        for name in NEEDED[read.mode(key)]:
            if (tensor := read.statistics.get(key, {}).get(name)) is None:
                there = f"; it has {', '.join(sorted(foreign))} instead" if foreign else ""
                raise CheckpointError(
                    f"{read.folder} has no statistic '{key}.{name}', which its normalisation "
                    f"{read.mode(key)} needs{there}. The policy would run un-normalised."
                )
            fits = tuple(tensor.shape) == shape or (len(shape) == 3 and tensor.numel() == shape[0])
            if not fits or not tensor.is_floating_point() or not tensor.isfinite().all():
                raise CheckpointError(
                    f"{read.folder} has the statistic '{key}.{name}' as {tensor.dtype} "
                    f"{tuple(tensor.shape)}, expected finite numbers of shape {shape}."
                )
    if foreign:
        raise CheckpointError(
            f"{read.folder} has statistics of {', '.join(sorted(foreign))}, which are not its features "
            f"({', '.join(sorted(shapes))}). They belong to another policy; save the checkpoint again."
        )


def _feature(folder: Path, key: str, entry: object) -> Feature:
    shape = entry.get("shape") if isinstance(entry, dict) else None
    kind = entry.get("type") if isinstance(entry, dict) else None
    sizes = isinstance(shape, list) and all(type(side) is int and 0 < side < 1 << 20 for side in shape)
    if not isinstance(shape, list) or not shape or not sizes or math.prod(shape) > 1 << 28:
        raise CheckpointError(f"{folder / CONFIG} gives '{key}' the shape {shape!r}.")
    if kind not in ("STATE", "ENV", "VISUAL", "ACTION"):
        raise CheckpointError(f"{folder / CONFIG} gives '{key}' the type {kind!r}, which is not supported.")
    return Feature(str(kind), tuple(shape))


def _object(folder: Path, config: Mapping[str, Any], key: str) -> dict[str, Any]:
    value = config.get(key)
    if not isinstance(value, dict):
        raise CheckpointError(f"{folder / CONFIG} holds no {key}.")
    return value


def _json(path: Path) -> dict[str, Any]:
    try:
        data = read_json(path)
    except DataError as error:
        raise CheckpointError(str(error)) from error
    if not isinstance(data, dict):
        raise CheckpointError(f"{path} holds a {type(data).__name__}, expected an object.")
    return data


def _tensors(path: Path) -> dict[str, Tensor]:
    try:
        found: dict[str, Tensor] = load_file(path)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{path} cannot be read ({error}). Copy the whole checkpoint again.") from error
    return found
