"""Checkpoints of base training: checkpoints/<step>/{state.safetensors, state.json}, written so that a kill at
any instant leaves the previous one usable.

Batches, noise and learning rates are functions of (seed, step), so that weights, their average, the
optimiser's moments and the step are the whole state.
"""

from __future__ import annotations

import shutil
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from policies.base.generative import GenerativePolicy
from policies.checkpoint import load_weights, pack, unpack
from robo_rl.core.errors import CheckpointError, DataError
from robo_rl.core.files.durable import read_json, write_atomic, write_json
from robo_rl.core.files.state_io import GO_ON

FORMAT = 1
_TENSORS, _JSON = "state.safetensors", "state.json"
# Settings that may change between two runs of the same training without changing its result.
FREE_SETTINGS = frozenset({"log_every", "checkpoint_every", "keep_checkpoints"})


@dataclass
class TrainState:
    """What one update changes."""

    policy: GenerativePolicy
    average: GenerativePolicy
    optimizer: torch.optim.Optimizer
    step: int = 0  # updates done
    consistent: bool = True  # False while an update is half done


def write_state(folder: Path, state: TrainState, settings: dict[str, Any], keep: int) -> None:
    """Write checkpoints/<step>; state.json comes last and makes it valid. Of older ones only the newest
    `keep` stay.

    settings: the run's configuration as JSON values, which a resumed run must share.
    """
    target = folder / "checkpoints" / f"{state.step:08d}"
    if not (target / _JSON).exists():
        tensors = pack(_tensors(state))
        write_atomic(target / _TENSORS, tensors)
        data = {"format": FORMAT, "step": state.step, "config": settings, "crc32": zlib.crc32(tensors)}
        write_json(target / _JSON, data)
    for old in _steps(folder)[: -max(1, keep)]:
        shutil.rmtree(old)


def latest_state(folder: Path, state: TrainState, settings: dict[str, Any]) -> bool:
    """Bring `state` to the newest checkpoint in `folder`; False where there is none.

    Raises CheckpointError when it is broken, or was made with other settings than these.
    """
    found = _steps(folder)
    if not found:
        return False
    data = _read(found[-1])
    _same_settings(found[-1], data["config"], settings)
    raw = (found[-1] / _TENSORS).read_bytes()
    if zlib.crc32(raw) != data["crc32"]:
        raise CheckpointError(f"{found[-1]} is damaged (checksum differs). {GO_ON}")
    tensors = unpack(raw, str(found[-1] / _TENSORS))
    load_weights(state.policy, _under("policy.", tensors), str(found[-1]))
    load_weights(state.average, _under("average.", tensors), str(found[-1]))
    _load_optimizer(state.optimizer, _under("optimizer.", tensors))
    state.step = int(data["step"])
    return True


def _tensors(state: TrainState) -> dict[str, Tensor]:
    optimizer = {
        f"{index}.{name}": value
        for index, moments in state.optimizer.state_dict()["state"].items()
        for name, value in moments.items()
    }
    parts = {
        "policy": state.policy.state_dict(),
        "average": state.average.state_dict(),
        "optimizer": optimizer,
    }
    return {f"{part}.{name}": value for part, tensors in parts.items() for name, value in tensors.items()}


def _load_optimizer(optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    moments: dict[int, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        index, name = key.split(".")
        moments.setdefault(int(index), {})[name] = value
    optimizer.load_state_dict({"state": moments, "param_groups": optimizer.state_dict()["param_groups"]})


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}


def _steps(folder: Path) -> list[Path]:
    """Complete checkpoints, oldest first."""
    return sorted(path.parent for path in (folder / "checkpoints").glob(f"*/{_JSON}"))


def _read(checkpoint: Path) -> dict[str, Any]:
    try:
        data = read_json(checkpoint / _JSON)
    except DataError as error:
        raise CheckpointError(str(error)) from error
    if data.get("format") != FORMAT:
        raise CheckpointError(
            f"{checkpoint} has format {data.get('format')!r}, expected {FORMAT}. Resume it with the version "
            "of robo-rl that wrote it, or start the run in a new folder."
        )
    assert isinstance(data, dict)
    return data


def _same_settings(checkpoint: Path, saved: dict[str, Any], now: dict[str, Any]) -> None:
    changed = [key for key in now if key not in FREE_SETTINGS and saved.get(key) != now[key]]
    if changed:
        listed = ", ".join(f"{key}={saved.get(key)} (now {now[key]})" for key in changed)
        raise CheckpointError(
            f"{checkpoint} was trained with {listed}. Resume with the same settings, or start in a new "
            "folder."
        )
