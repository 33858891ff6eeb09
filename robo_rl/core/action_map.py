"""The seam of fine-tuning: what an actor's output means.

Direct, residual and steering differ only in the dimension and time scale of the actor's output `u`, in what
the robot executes because of it, and in what the critic sees. Learners hold an `ActionMap` and never ask
which one it is; the deployed policies use the same maps, so that training and robot cannot differ.

`u` lies in [-1, 1]^dim, and u = 0 reproduces the base policy bit for bit. `ctx` is what the map needs from
outside: the base action of a residual, the base's own noise under steering, nothing for direct control.

`reach` is the share of its range that a map gives u = 1. Training may begin with a small one, so that an
actor that has learned nothing yet stays near the base; what is saved is the range that was reached.
"""

from __future__ import annotations

import math
from typing import Any, Literal, Protocol, get_args, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from robo_rl.core.errors import ConfigError

TimeScale = Literal["step", "chunk"]
Origin = Literal["zero", "gaussian"]


@runtime_checkable
class ActionMap(Protocol):
    """dim: size of u; ctx_dim: size of ctx; critic_dim: size of what the critic sees; reach: in (0, 1]."""

    dim: int
    ctx_dim: int
    critic_dim: int
    timescale: TimeScale
    reach: float

    def to_critic(self, u: Float[Tensor, "b dim"], ctx: Float[Tensor, "b ctx"]) -> Float[Tensor, "b k"]:
        """What the critic sees of u; differentiable in u."""
        ...


class DirectMap:
    """action = u: reinforcement learning without a base, so there is nothing to stay near and `reach` is
    1.
    """

    timescale: TimeScale = "step"
    reach: float = 1.0

    def __init__(self, action_dim: int) -> None:
        self.dim, self.ctx_dim, self.critic_dim = action_dim, 0, action_dim

    def to_critic(self, u: Float[Tensor, "b a"], ctx: Float[Tensor, "b 0"]) -> Float[Tensor, "b a"]:
        return u


class ResidualMap:
    """action = clamp(base + scale * u, -1, 1); `ctx` is the base action, the critic sees the executed action.

    `scale` is in normalised action units: 0.1 lets the residual move a target by 10 % of half its range. With
    `steps` = 1 the residual acts every step; with `steps` = Ta it corrects a whole executed chunk, flattened.
    """

    def __init__(self, action_dim: int, scale: float, steps: int = 1) -> None:
        if not 0.0 < scale <= 1.0:
            raise ConfigError(f"The residual's scale must lie in (0, 1], found {scale}.")
        if steps < 1:
            raise ConfigError(f"A residual corrects at least one step at a time, found {steps}.")
        self.scale, self.steps, self.reach = scale, steps, 1.0
        self.dim = self.ctx_dim = self.critic_dim = action_dim * steps
        self.timescale: TimeScale = "step" if steps == 1 else "chunk"

    def to_critic(self, u: Float[Tensor, "b a"], ctx: Float[Tensor, "b a"]) -> Float[Tensor, "b a"]:
        return (ctx + self.reach * self.scale * u).clamp(-1.0, 1.0)

    def config(self) -> dict[str, Any]:
        """What makes this map again, with the range that it has reached."""
        return {"scale": self.reach * self.scale, "steps": self.steps}


class LatentMap:
    """noise = ctx + magnitude * spread(u): the actor steers the initial noise of a generative base.

    With origin "gaussian" `ctx` is the base's own noise, flattened, and steering starts from the stochastic
    base; with "zero" there is no ctx and it starts from the deterministic zero-noise base. Every element of
    the (Tp, a) noise is free by default; `rank` r restricts the shift to the r slowest cosines over the chunk
    (smooth in time, scaled so that the shift keeps the root mean square of u). Repeating one vector over the
    chunk is not offered: it takes base policies off the noise they were trained on.
    """

    timescale: TimeScale = "chunk"

    def __init__(
        self, chunk: int, action_dim: int, magnitude: float, origin: Origin = "zero", rank: int | None = None
    ) -> None:
        if not 0.0 < magnitude < math.inf:
            raise ConfigError(f"The steering magnitude must be positive, found {magnitude}.")
        if origin not in get_args(Origin):
            raise ConfigError(f"Steering starts from the origin zero or gaussian, found '{origin}'.")
        if rank is not None and not 1 <= rank <= chunk:
            raise ConfigError(
                f"The rank of the steering basis must lie in [1, {chunk}], the chunk length; found {rank}."
            )
        self.magnitude, self.origin, self.rank, self.reach = magnitude, origin, rank, 1.0
        self.shape = (chunk, action_dim)
        self.dim = (rank or chunk) * action_dim
        self.critic_dim = chunk * action_dim
        self.ctx_dim = 0 if origin == "zero" else self.critic_dim
        self._basis = None if rank is None else cosine_basis(chunk, rank)

    def to_critic(self, u: Float[Tensor, "b dim"], ctx: Float[Tensor, "b ctx"]) -> Float[Tensor, "b k"]:
        if self._basis is not None:
            coefficients = u.view(len(u), -1, self.shape[1])
            u = torch.einsum("tr,bra->bta", self._basis.to(u), coefficients).flatten(1)
        shift = self.reach * self.magnitude * u
        return shift if self.origin == "zero" else ctx + shift

    def to_noise(self, u: Float[Tensor, "b dim"], ctx: Float[Tensor, "b ctx"]) -> Float[Tensor, "b Tp a"]:
        """The same, in the shape that a policy's noise port takes."""
        return self.to_critic(u, ctx).view(-1, *self.shape)

    def config(self) -> dict[str, Any]:
        """What makes this map again, with the range that it has reached."""
        return {"magnitude": self.reach * self.magnitude, "origin": self.origin, "rank": self.rank}


def cosine_basis(length: int, rank: int) -> Float[Tensor, "length rank"]:
    """The `rank` slowest columns of the orthonormal DCT-II, times sqrt(length / rank).

    The factor makes the mean square of basis @ u equal that of u when u is isotropic.
    """
    t = torch.arange(length, dtype=torch.float64) + 0.5
    columns = [
        torch.cos(math.pi * k * t / length) * math.sqrt((1.0 if k == 0 else 2.0) / length)
        for k in range(rank)
    ]
    return (torch.stack(columns, dim=1) * math.sqrt(length / rank)).float()
