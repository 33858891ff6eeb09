"""Ranks: the processes that train one network together, each on its shard of every batch."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor


@dataclass(frozen=True)
class Ranks:
    """Number of this process among those that train together; by default it trains alone.

    With count > 1 the process group of torch.distributed is open. Its methods are collective: every rank
    calls them in the same order.
    """

    rank: int = 0
    count: int = 1

    @property
    def leads(self) -> bool:
        """True for rank 0, which writes the run."""
        return self.rank == 0

    def shard(self, rows: Tensor) -> Tensor:
        """Rows of a batch that are this rank's. The batch's length is a multiple of `count`."""
        each = len(rows) // self.count
        return rows[self.rank * each : (self.rank + 1) * each]

    def mean(self, value: Tensor) -> Tensor:
        """Mean of `value` over the ranks, on its device."""
        if self.count == 1:
            return value
        total = value.detach().clone()
        dist.all_reduce(total)
        return total / self.count

    def gather(self, value: Tensor) -> list[Tensor]:
        """`value` of every rank, in their order."""
        if self.count == 1:
            return [value]
        found = [torch.empty_like(value) for _ in range(self.count)]
        dist.all_gather(found, value)
        return found


class StopVote:
    """Agreement of all ranks to stop after the same step, whichever of them was asked to.

    Each rank calls it once per step with its own wish. The answer includes the wishes of the call before, so
    the exchange overlaps with a step and the ranks do not wait for it.
    """

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks
        self._wish = torch.zeros(1)
        self._sent: dist.Work | None = None

    def __call__(self, wish: bool) -> bool:
        """True if any rank wished to stop at the previous call; alone, `wish` itself."""
        if self._ranks.count == 1:
            return wish
        self.finish()
        if self._wish.item() > 0.0:  # a tensor of the CPU: the device is not read
            return True
        self._wish.fill_(float(wish))
        self._sent = dist.all_reduce(self._wish, dist.ReduceOp.MAX, async_op=True)
        return False

    def finish(self) -> None:
        """Complete the exchange of the last call, before the process group is closed."""
        if self._sent is not None:
            self._sent.wait()
            self._sent = None
