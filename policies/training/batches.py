"""Batches for base training: windows, their order and random numbers as functions of (seed, step).

Nothing here has state: update s draws the same batch, noise, times and crops whether or not the run was
killed before it, so resuming is exact.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from robo_rl.core.errors import DataError
from robo_rl.core.process_signals import leave_to_parent
from robo_rl.core.protocols import Obs
from robo_rl.core.seeding import generator
from robo_rl.core.shapes import Float, Int
from robo_rl.core.spec import ActionSpec
from robo_rl.nets.ranks import Ranks

ALONE = Ranks()
BELOW_1 = 1.0 - 2.0**-24  # the largest float32 below 1
Window = dict[str, Any]  # observation keys (To, *shape) and "action" (Tp, a) in physical units


@runtime_checkable
class WindowSource(Protocol):
    """Source of batches: obs (b, To, *shape) and chunks (b, Tp, a) in [-1, 1]."""

    def __len__(self) -> int: ...

    def batches(
        self,
        batch_size: int,
        seed: int,
        start: int,
        stop: int,
        device: torch.device,
        ranks: Ranks = ALONE,
    ) -> Iterator[tuple[Obs, Float[Tensor, "b Tp a"]]]:
        """Batches of updates start, ..., stop - 1; of each, this rank's shard of batch_size / count rows."""
        ...


def batch_indices(
    windows: int, batch_size: int, seed: int, start: int, stop: int
) -> Iterator[Int[Tensor, " b"]]:
    """Indices for updates start..stop-1: a new permutation of all windows per epoch, without gaps."""
    if windows < 1:
        raise DataError("The dataset holds no windows. Record longer episodes, or shorten the chunk.")
    epochs: dict[int, Tensor] = {}
    for step in range(start, stop):
        first, last = step * batch_size, (step + 1) * batch_size - 1
        needed = range(first // windows, last // windows + 1)
        epochs = {e: epochs[e] if e in epochs else _order(windows, seed, e) for e in needed}
        joined = torch.cat([epochs[e] for e in needed]) if len(needed) > 1 else epochs[needed[0]]
        offset = first - needed[0] * windows
        yield joined[offset : offset + batch_size]


def _order(windows: int, seed: int, epoch: int) -> Int[Tensor, " n"]:
    return torch.randperm(windows, generator=generator("order", seed, epoch))


@dataclass(frozen=True)
class TensorWindows:
    """All windows in memory, for state observations: n * (To * obs + Tp * a) floats."""

    obs: Obs  # key -> (n, To, *shape)
    action: Float[Tensor, "n Tp a"]  # in [-1, 1]

    @classmethod
    def from_physical(cls, windows: Mapping[str, Tensor], action: ActionSpec) -> TensorWindows:
        """Windows of `robo_rl.data.windows.load_tensors`, with actions in physical units."""
        obs = {key: value for key, value in windows.items() if key != "action"}
        return cls(obs, action.normalize(windows["action"]))

    def __len__(self) -> int:
        return len(self.action)

    def to(self, device: torch.device) -> TensorWindows:
        return TensorWindows({k: v.to(device) for k, v in self.obs.items()}, self.action.to(device))

    def batches(
        self,
        batch_size: int,
        seed: int,
        start: int,
        stop: int,
        device: torch.device,
        ranks: Ranks = ALONE,
    ) -> Iterator[tuple[Obs, Float[Tensor, "b Tp a"]]]:
        here = self.to(device)
        for index in batch_indices(len(self), batch_size, seed, start, stop):
            rows = ranks.shard(index).to(device)
            yield {key: value[rows] for key, value in here.obs.items()}, here.action[rows]


@dataclass(frozen=True)
class LoaderWindows:
    """Windows read by a DataLoader, for images. `dataset[i]` must be a pure function of i.

    collate: of torch's DataLoader; robo_rl.data.windows.collate for a WindowDataset.
    """

    dataset: Dataset[Window]
    action: ActionSpec
    workers: int = 0
    collate: Callable[[Any], Window] | None = None

    def __len__(self) -> int:
        return len(self.dataset)  # type: ignore[arg-type]  # torch's Dataset declares no __len__

    def batches(
        self,
        batch_size: int,
        seed: int,
        start: int,
        stop: int,
        device: torch.device,
        ranks: Ranks = ALONE,
    ) -> Iterator[tuple[Obs, Float[Tensor, "b Tp a"]]]:
        # One batch at a time: the order of an entire training would be gigabytes of integers.
        indices = batch_indices(len(self), batch_size, seed, start, stop)
        order = (ranks.shard(index).tolist() for index in indices)
        loader = DataLoader(
            self.dataset,
            batch_sampler=order,
            num_workers=self.workers,
            collate_fn=self.collate,
            worker_init_fn=leave_stops_to_parent,
        )
        for batch in loader:
            columns = {key: value.to(device, non_blocking=True) for key, value in batch.items()}
            yield columns, self.action.normalize(columns.pop("action"))


def leave_stops_to_parent(worker: int) -> None:
    """Ignore the signals that end the parent, which could not finish the update after which it saves without
    its loader process.
    """
    leave_to_parent(signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True)
class Draws:
    """Random numbers of one update."""

    noise: Float[Tensor, "b *n Tp a"]  # n noises of each window, or one without that axis
    # in [0, 1), stratified: one per interval of width 1 / b, which lowers the variance of the gradient
    u: Float[Tensor, " b"]
    crop: Float[Tensor, "b cameras 2"]


def draws(
    seed: int,
    step: int,
    action: Float[Tensor, "b Tp a"],
    cameras: int,
    ranks: Ranks = ALONE,
    noises: int = 1,
) -> Draws:
    """Random numbers of update `step`, on the device of `action`.

    action: this rank's shard. The entire batch is drawn, so that each window gets the same numbers however
    many ranks there are. noises: of each window; noise j of a window is that of the window j before it.
    """
    b, device = len(action) * ranks.count, action.device
    rng = generator("bc", seed, step, device=device)
    noise = torch.randn((b, *action.shape[1:]), generator=rng, device=device)
    within = torch.rand(b, generator=rng, device=device)
    # Float32 would round the highest draws of the last interval up to 1, which is no valid training step.
    u = ((torch.arange(b, device=device) + within) / b).clamp(max=BELOW_1)
    crop = torch.rand(b, cameras, 2, generator=rng, device=device)
    if noises > 1:
        noise = torch.stack([noise.roll(j, 0) for j in range(noises)], 1)
    return Draws(ranks.shard(noise), ranks.shard(u), ranks.shard(crop))
