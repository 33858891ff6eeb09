"""Data-parallel gradients by DistributedDataParallel, such that a resumed training gives the same bits."""

from __future__ import annotations

import inspect
import warnings
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from robo_rl.nets.ranks import Ranks


def averaged_loss(loss: nn.Module, example: tuple[Any, ...]) -> nn.Module:
    """`loss` with rank 0's weights, whose backward pass averages the gradients over the ranks.

    DistributedDataParallel groups the gradients anew after its first backward pass, and sums of three or more
    ranks are rounded differently in another grouping. A rehearsal on `example` makes every real update use
    the final groups, also the first one after a resume.
    """
    # constant buffers (the normaliser) need no copy per step; torch 2.13 has renamed the argument
    known = inspect.signature(DistributedDataParallel).parameters
    per_step = "forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers"
    module = DistributedDataParallel(loss, **{per_step: False})  # type: ignore[arg-type]  # a bool in both
    with warnings.catch_warnings():
        # gradients of 1x1 convolutions have other strides than the groups: same values, one more copy
        warnings.filterwarnings("ignore", "Grad strides do not match bucket view strides")
        for _ in range(2):  # the groups are made anew when the second pass begins
            module(*example).backward()
    module.zero_grad(set_to_none=True)
    return module


def share_state(step: int, optimizer: torch.optim.Optimizer, ranks: Ranks) -> int:
    """Copy rank 0's moments into every rank's AdamW; returns rank 0's step. The weights are not copied."""
    number = torch.tensor([step])
    dist.broadcast(number, src=0)
    if int(number) > 0:
        if not ranks.leads:
            _empty_moments(optimizer)
        for parameter in _parameters(optimizer):
            for _, value in sorted(optimizer.state[parameter].items()):
                dist.broadcast(value, src=0)
    return int(number)


def _empty_moments(optimizer: torch.optim.Optimizer) -> None:
    state = {
        number: {
            "step": torch.tensor(0.0),
            "exp_avg": torch.zeros_like(parameter),
            "exp_avg_sq": torch.zeros_like(parameter),
        }
        for number, parameter in enumerate(_parameters(optimizer))
    }
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


def _parameters(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]
