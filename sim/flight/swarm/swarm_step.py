"""The seam at which another engine moves a swarm: from state to state like our dynamics, but there things
bounce.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from sim.engines.quad.dynamics import QuadPhysics


class Touched(NamedTuple):
    """Drones in contact within the last control step."""

    drone: Bool[Tensor, " n"]
    cylinder: Bool[Tensor, " n"]
    floor: Bool[Tensor, " n"]

    @classmethod
    def nobody(cls, num: int) -> Touched:
        return cls(*torch.zeros(3, num, dtype=torch.bool).unbind(0))


@runtime_checkable
class SwarmStep(Protocol):
    """step(state, rotor commands, params, external) -> state after a control step; see
    `dynamics.make_step`.
    """

    physics: QuadPhysics  # by whose small steps `params` are made
    touched: Touched

    def __call__(self, state: Tensor, command: Tensor, params: Tensor, external: Tensor) -> Tensor: ...

    def stand(self, cylinders: Float[Tensor, "2 w m"]) -> None:
        """Put every world's cylinders where these axes [m] are, before the next step."""
        ...


def led(ours: Tensor, theirs: Tensor) -> Tensor:
    """Their states, to the bit, with the gradients of ours."""
    return theirs + (ours - ours.detach())
