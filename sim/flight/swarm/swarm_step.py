"""Interface of another engine that moves a swarm: from state to state like our dynamics, with contacts."""

from __future__ import annotations

from typing import NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor

from robo_rl.core.shapes import Bool, Float
from sim.engines.quad.dynamics import QuadPhysics


class Touched(NamedTuple):
    """Masks of drones that were in contact during the last control step."""

    drone: Bool[Tensor, " n"]
    cylinder: Bool[Tensor, " n"]
    floor: Bool[Tensor, " n"]

    @classmethod
    def none(cls, num: int) -> Touched:
        return cls(*torch.zeros(3, num, dtype=torch.bool).unbind(0))


@runtime_checkable
class SwarmStep(Protocol):
    """step(state, rotor commands, params, external) -> state after a control step (`dynamics.make_step`)."""

    physics: QuadPhysics  # whose substeps `params` are made for
    touched: Touched

    def __call__(self, state: Tensor, command: Tensor, params: Tensor, external: Tensor) -> Tensor: ...

    def place_cylinders(self, cylinders: Float[Tensor, "2 w m"]) -> None:
        """Place the cylinders of every world at these axes [m, world] before the next step."""
        ...


def straight_through(ours: Tensor, theirs: Tensor) -> Tensor:
    """The values of `theirs`, exactly, with the gradients of `ours`."""
    return theirs + (ours - ours.detach())
