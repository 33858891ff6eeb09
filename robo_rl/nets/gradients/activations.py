"""Activations and their derivatives on buffers that stay in memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

_ops = torch.ops.aten


@dataclass(frozen=True, slots=True)
class Activation:
    """h = act(y). in_place: h overwrites y, and the derivative follows from h alone.

    forward(y, h) writes h. backward(g, y, h) turns dL/dh into dL/dy in place, where y is h if `in_place`.
    """

    forward: Callable[[Tensor, Tensor], object]
    backward: Callable[[Tensor, Tensor, Tensor], object]
    in_place: bool


ACTIVATIONS = {
    "relu": Activation(
        lambda y, h: torch.relu_(y),
        lambda g, y, h: _ops.threshold_backward.grad_input(g, h, 0.0, grad_input=g),
        in_place=True,
    ),
    "tanh": Activation(
        lambda y, h: torch.tanh(y, out=h),
        lambda g, y, h: _ops.tanh_backward.grad_input(g, h, grad_input=g),
        in_place=True,
    ),
    "silu": Activation(
        lambda y, h: _ops.silu.out(y, out=h),
        lambda g, y, h: _ops.silu_backward.grad_input(g, y, grad_input=g),
        in_place=False,
    ),
}
