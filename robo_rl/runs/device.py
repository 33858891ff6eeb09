"""The compute device of a verb."""

from __future__ import annotations

import copy
import re
from itertools import chain

import torch
from torch import nn

from policies.registry import SavedPolicy
from robo_rl.core.errors import ConfigError


def set_cpu_threads(threads: int, images: bool) -> None:
    """Set torch's CPU threads. 0: one thread, or torch's default for images.

    Small networks gain little from a second thread. On a busy machine each update waits for the thread
    without a core, which made training several times slower in wall and CPU time.
    """
    if threads or not images:
        torch.set_num_threads(threads or 1)


def pick_device(name: str) -> torch.device:
    """Device named "auto" (the first GPU, or the CPU), "cpu", "cuda" or "cuda:1".

    Raises ConfigError if the device does not exist.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if not re.fullmatch(r"cpu|cuda(:\d+)?", name):
        raise ConfigError(f"device={name} cannot be used, expected: auto | cpu | cuda | cuda:<number>.")
    device = torch.device(name)
    if device.type == "cuda" and (device.index or 0) >= (found := torch.cuda.device_count()):
        raise ConfigError(
            f"device={name} was asked for, but torch sees {found} GPUs here. Use device=cpu, or see: robo-rl "
            "doctor"
        )
    return device


def train_in_tf32(device: torch.device) -> None:
    """On a GPU, let the matrix products of float32 in this process use TF32, whose mantissa has 10 bits
    instead of 23. Verbs that deploy or only evaluate keep float32.
    """
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high")


def device_of(policy: object) -> torch.device:
    """Device of a policy, which is a module; the CPU if it has no tensors."""
    assert isinstance(policy, nn.Module)
    first = next(chain(policy.parameters(), policy.buffers()), None)
    return torch.device("cpu") if first is None else first.device


def run_device(name: str, simulator: torch.device) -> torch.device:
    """Device of a run. "auto": that of the simulator, whose results then need no copy; else see
    `pick_device`.
    """
    return simulator if name == "auto" else pick_device(name)


def copied_to(policy: SavedPolicy, device: torch.device) -> SavedPolicy:
    """A copy of the policy on the device; the policy itself stays where it is."""
    moved = copy.deepcopy(policy)
    assert isinstance(moved, nn.Module)
    moved.to(device)
    return moved
