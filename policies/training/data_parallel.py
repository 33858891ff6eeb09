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
    module = DistributedDataParallel(
        loss,
        find_unused_parameters=not _all_take_part(loss, example),
        **{per_step: False},  # type: ignore[arg-type]  # a bool in both
    )
    with warnings.catch_warnings():
        # gradients of 1x1 convolutions have other strides than the groups: same values, one more copy
        warnings.filterwarnings("ignore", "Grad strides do not match bucket view strides")
        for _ in range(2):  # the groups are made anew when the second pass begins
            module(*example).backward()
    module.zero_grad(set_to_none=True)
    return module


def _all_take_part(loss: nn.Module, example: tuple[Any, ...]) -> bool:
    """True if the loss has a gradient for every trained parameter.

    The last layer of a vision-language-action policy's prefix ends in features that only critics see.
    """
    loss(*example).backward()
    found = all(each.grad is not None for each in loss.parameters() if each.requires_grad)
    loss.zero_grad(set_to_none=True)
    return found


def share_state(step: int, optimizer: torch.optim.Optimizer, ranks: Ranks) -> int:
    """Copy rank 0's moments into every rank's AdamW; returns rank 0's step. The weights are not copied."""
    number = torch.tensor([step])
    dist.broadcast(number, src=0)
    if int(number) > 0:
        updated = have_moments(optimizer)
        if not ranks.leads:
            _empty_moments(optimizer, updated)
        for parameter, known in zip(trained(optimizer), updated, strict=True):
            for _, value in sorted(optimizer.state[parameter].items()) if known else ():
                dist.broadcast(value, src=0)
    return int(number)


def have_moments(optimizer: torch.optim.Optimizer) -> list[bool]:
    """Which parameters rank 0 has updated: those that had a gradient."""
    known = torch.tensor([parameter in optimizer.state for parameter in trained(optimizer)])
    dist.broadcast(known, src=0)
    return [bool(each) for each in known]


def trained(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    """Parameters of an optimiser."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def _empty_moments(optimizer: torch.optim.Optimizer, updated: list[bool]) -> None:
    state = {
        number: {
            "step": torch.tensor(0.0),
            "exp_avg": torch.zeros_like(parameter),
            "exp_avg_sq": torch.zeros_like(parameter),
        }
        for number, parameter in enumerate(trained(optimizer))
        if updated[number]
    }
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
