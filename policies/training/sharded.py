"""Training in shards by FSDP2: each rank holds a part of weights, gradients, moments and average.

Of n trained numbers in float32, rank 0 holds 20 n bytes with DistributedDataParallel: weights, gradients, two
moments, average. In shards each rank holds 20 n / ranks, and the whole weights of the large layer that is
computed and of all small ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from policies.training.base import BasePolicy, BaseTrainer, make_optimizer
from policies.training.data_parallel import have_moments, trained

LAYER = 1_000_000  # numbers of a layer that is collected on its own; smaller ones are collected with the rest
MOMENTS = ("exp_avg", "exp_avg_sq")  # of AdamW


class ShardedTrainer(BaseTrainer[BasePolicy]):
    """A `BaseTrainer` whose ranks each hold a part of all that it trains.

    The weights are whole on every rank until `share`, which all ranks call before the first update. All ranks
    call `gather` after the same updates; rank 0 then has the whole state, and the average in `average`.
    """

    gathered_at = -1  # update after which rank 0 had the whole state last
    _whole: Mapping[str, Any] | None = None  # rank 0's, until the next update
    _parts: Mapping[int, DTensor] | None = None  # of the average: number of the parameter -> part

    def share(self) -> None:
        """Give every rank its part of rank 0's state."""
        number = torch.tensor([self.step, self.gathered_at])
        dist.broadcast(number, src=0)
        self.step, self.gathered_at = number.tolist()
        whole = list(self.policy.parameters())
        average = list(self.average.parameters())
        for value in (*whole, *average, *self.policy.buffers()):
            dist.broadcast(value.data, src=0)
        updated = have_moments(self.optimizer)
        moments = [self.optimizer.state.get(each, {}) for each in trained(self.optimizer)]
        mesh = init_device_mesh(self._device.type, (self._ranks.count,))
        for layer in _layers(self.policy):
            fully_shard(layer, mesh=mesh)
        fully_shard(self._loss, mesh=mesh)
        self._parts = {
            i: _part(slow, fast)
            for i, (slow, fast) in enumerate(zip(average, self.policy.parameters(), strict=True))
            if slow is not whole[i]  # a frozen part is the policy's own
        }
        self.average.to("cpu" if self._ranks.leads else "meta")
        self.optimizer = make_optimizer(self.policy, self.config, self._device)
        self._put_moments(moments, updated)

    def gather(self) -> None:
        """Collect the state on rank 0, unless that was done after this update."""
        if self.gathered_at == self.step or self._parts is None:
            return
        policy = {name: self._collect(value) for name, value in self.policy.state_dict().items()}
        moments = {
            i: {name: self._collect(value) for name, value in self.optimizer.state[each].items()}
            for i, each in enumerate(trained(self.optimizer))
            if each in self.optimizer.state
        }
        average = list(self.average.parameters())
        for i, part in self._parts.items():
            collected = self._collect(part)
            if self._ranks.leads:
                average[i].data.copy_(collected)
        self._whole = {"policy": policy, "optimizer": moments} if self._ranks.leads else {}
        self.gathered_at = self.step

    def state_dict(self) -> dict[str, Any]:
        """The state of a `BaseTrainer`, on rank 0. Collective, as `gather` is."""
        self.gather()
        if self._whole is None:
            return super().state_dict()
        kept = {"config": asdict(self.config), "step": self.step, "ranks": self._ranks.count}
        return kept | {**self._whole, "average": self.average.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.gathered_at = self.step

    def _collect(self, value: Tensor) -> Tensor:
        """The whole of a part, on the CPU of rank 0; empty elsewhere. Collective for parts."""
        whole = value.full_tensor() if isinstance(value, DTensor) else value
        return whole.detach().cpu().clone() if self._ranks.leads else whole.new_empty(0)

    def _put_moments(self, moments: list[Mapping[str, Tensor]], updated: list[bool]) -> None:
        """Rank 0's moments in parts, for the optimiser of parts."""
        for each, known, has in zip(trained(self.optimizer), moments, updated, strict=True):
            if not has:
                continue
            empty = torch.empty(each.shape, device=self._device)
            state = {name: _part(known.get(name, empty), each) for name in MOMENTS}
            step = torch.tensor(float(self.step), device=self._device)
            self.optimizer.state[each] = {"step": step, **state}

    def _clip(self) -> Tensor:
        norm = super()._clip()
        return norm.full_tensor() if isinstance(norm, DTensor) else norm

    @torch.no_grad()
    def _follow(self, decay: float) -> None:
        assert self._parts is not None, "`share` was not called"
        self._whole = None
        fast = list(self.policy.parameters())
        slow = [part.to_local() for part in self._parts.values()]
        now = [_local(fast[i]) for i in self._parts]
        torch._foreach_lerp_(slow, now, 1.0 - decay)


def _layers(policy: nn.Module) -> Iterator[nn.Module]:
    """Large layers of stacks: while one is computed, the others stay in parts. One that holds others, such as
    an action expert, comes after them, as FSDP2 needs it.
    """
    for stack in reversed(list(policy.modules())):
        if isinstance(stack, nn.ModuleList):
            for layer in stack:
                size = sum(parameter.numel() for parameter in layer.parameters())
                if size >= LAYER and not isinstance(layer, nn.ModuleList):
                    yield layer


def _part(whole: Tensor, like: Tensor) -> DTensor:
    """The rank's part of rank 0's tensor, cut as `like`."""
    assert isinstance(like, DTensor)
    return distribute_tensor(whole.detach().clone(), like.device_mesh, like.placements)


def _local(parameter: Tensor) -> Tensor:
    return parameter.to_local() if isinstance(parameter, DTensor) else parameter
