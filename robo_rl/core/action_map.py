"""Action maps: from the actor's output `u` to the executed action, or to the base policy's initial noise.

Direct, residual, steering and denoising methods differ only in the dimension and time scale of `u`, in what
the robot executes, and in the critic's input. Learners use an `ActionMap` and treat all kinds alike. Deployed
policies use the same maps, so training and robot agree.

`u` lies in [-1, 1]^dim, and u = 0 reproduces the base policy bit for bit; for a `ChainMap`, u is a denoising
chain. `ctx` is the map's second input: the base action for a residual, the base's own noise for steering,
nothing for direct control and for chains.
"""

from __future__ import annotations

import math
from typing import Any, Literal, Protocol, get_args, runtime_checkable

import torch
from torch import Tensor

from robo_rl.core.errors import ConfigError
from robo_rl.core.shapes import Float, Int

TimeScale = Literal["step", "chunk"]
Origin = Literal["zero", "gaussian"]


@runtime_checkable
class ActionMap(Protocol):
    """Map from u to the executed action. dim, ctx_dim, critic_dim: sizes of u, ctx and the critic's action
    input.
    """

    dim: int
    ctx_dim: int
    critic_dim: int
    timescale: TimeScale

    def to_critic(self, u: Float[Tensor, "b dim"], ctx: Float[Tensor, "b ctx"]) -> Float[Tensor, "b k"]:
        """The critic's action input for u; differentiable in u."""
        ...


class DirectMap:
    """action = u: reinforcement learning without a base policy."""

    timescale: TimeScale = "step"

    def __init__(self, action_dim: int) -> None:
        self.dim, self.ctx_dim, self.critic_dim = action_dim, 0, action_dim

    def to_critic(self, u: Float[Tensor, "b a"], ctx: Float[Tensor, "b 0"]) -> Float[Tensor, "b a"]:
        return u


class ResidualMap:
    """action = clamp(base + scale * u, -1, 1); `ctx` is the base action, the critic sees the executed action.

    `scale` is in normalised action units: 0.1 lets the residual move a target by 10 % of half its range. With
    `steps` = 1 the residual acts every step; with `steps` = Ta it corrects an entire executed chunk,
    flattened.
    """

    def __init__(self, action_dim: int, scale: float, steps: int = 1) -> None:
        if not 0.0 < scale <= 1.0:
            raise ConfigError(f"The residual's scale must lie in (0, 1], found {scale}.")
        if steps < 1:
            raise ConfigError(f"A residual needs steps of at least 1, found {steps}.")
        self.scale, self.steps = scale, steps
        self.dim = self.ctx_dim = self.critic_dim = action_dim * steps
        self.timescale: TimeScale = "step" if steps == 1 else "chunk"

    def to_critic(self, u: Float[Tensor, "b a"], ctx: Float[Tensor, "b a"]) -> Float[Tensor, "b a"]:
        return (ctx + self.scale * u).clamp(-1.0, 1.0)

    def config(self) -> dict[str, Any]:
        """Arguments that rebuild this map."""
        return {"scale": self.scale, "steps": self.steps}


class LatentMap:
    """noise = ctx + magnitude * expand(u): the actor steers the initial noise of a generative base.

    With origin "gaussian", `ctx` is the base's own noise, flattened, and steering starts from the stochastic
    base. With "zero" there is no ctx, and steering starts from the deterministic base at zero noise. By
    default u has one entry for each element of the (Tp, a) noise. `rank` r restricts the shift to the r
    slowest cosines over the chunk: smooth in time, scaled to keep the root mean square of u. One vector
    repeated over the chunk is not offered, because it is far from the noise that base policies are trained
    on.
    """

    timescale: TimeScale = "chunk"

    def __init__(
        self, chunk: int, action_dim: int, magnitude: float, origin: Origin = "zero", rank: int | None = None
    ) -> None:
        if not 0.0 < magnitude < math.inf:
            raise ConfigError(f"The steering magnitude must be positive, found {magnitude}.")
        if origin not in get_args(Origin):
            raise ConfigError(f"The origin of steering must be zero or gaussian, found '{origin}'.")
        if rank is not None and not 1 <= rank <= chunk:
            raise ConfigError(
                f"The rank of the steering basis must lie in [1, {chunk}], the chunk length; found {rank}."
            )
        self.magnitude, self.origin, self.rank = magnitude, origin, rank
        self.shape = (chunk, action_dim)
        self.dim = (rank or chunk) * action_dim
        self.critic_dim = chunk * action_dim
        self.ctx_dim = 0 if origin == "zero" else self.critic_dim
        self._basis = None if rank is None else cosine_basis(chunk, rank)

    def to_critic(self, u: Float[Tensor, "b dim"], ctx: Float[Tensor, "b ctx"]) -> Float[Tensor, "b k"]:
        if self._basis is not None:
            coefficients = u.view(len(u), -1, self.shape[1])
            u = torch.einsum("tr,bra->bta", self._basis.to(u), coefficients).flatten(1)
        shift = self.magnitude * u
        return shift if self.origin == "zero" else ctx + shift

    def to_noise(self, u: Float[Tensor, "b dim"], ctx: Float[Tensor, "b ctx"]) -> Float[Tensor, "b Tp a"]:
        """`to_critic` in the shape of a policy's noise input."""
        return self.to_critic(u, ctx).view(-1, *self.shape)

    def config(self) -> dict[str, Any]:
        """Arguments that rebuild this map."""
        return {"magnitude": self.magnitude, "origin": self.origin, "rank": self.rank}


class ChainMap:
    """The actor is the base itself: u holds a denoising chain, and its last point is the chunk, clipped.

    u = (x_0, ..., x_K, j), with the K + 1 points flattened and one number for the policy head. A chain that
    follows the deterministic path reproduces the base bit for bit. The chain starts from the base's noise,
    which is part of u, so that there is no ctx.

    With `draws` n, u = (noise_1, ..., noise_n, chunk, time_1, ..., time_n): the chunk, and the draws at which
    the loss of the base's training is taken for it.
    """

    timescale: TimeScale = "chunk"

    def __init__(self, chunk: int, action_dim: int, transitions: int, execute: int, draws: int = 0) -> None:
        self.shape, self.execute, self.draws = (chunk, action_dim), execute, draws
        self._points, self._extra = (draws or transitions) + 1, draws or 1
        self.dim = self._points * chunk * action_dim + self._extra
        self.ctx_dim, self.critic_dim = 0, execute * action_dim

    def to_chunk(self, u: Float[Tensor, "b dim"]) -> Float[Tensor, "b Tp a"]:
        """The chunk at the end of the chain."""
        return self.points(u)[:, -1].clamp(-1.0, 1.0)

    def points(self, u: Float[Tensor, "b dim"]) -> Float[Tensor, "b K1 Tp a"]:
        """The K + 1 points of the chain, or the noise of the draws and the chunk; a view."""
        points: Tensor = u[:, : -self._extra].unflatten(1, (self._points, *self.shape))
        return points

    def to_critic(self, u: Float[Tensor, "b dim"], ctx: Float[Tensor, "b 0"]) -> Float[Tensor, "b k"]:
        return self.to_chunk(u)[:, : self.execute].flatten(1)


class CandidateMap:
    """The executed chunk is one of `count` draws of the base, with an edit of at most `scale`; 0: no edits.

    u = (edit, choice). The edit has the size of an executed chunk of `steps` actions, flattened;
    round(|choice| (count - 1)) is the number of the draw. `ctx` holds the executed parts of all draws; u = 0
    is the first one, the base's own. The critic sees the executed chunk.
    """

    timescale: TimeScale = "chunk"

    def __init__(self, action_dim: int, steps: int, count: int, scale: float = 0.0) -> None:
        if count < 2 or not 0.0 <= scale <= 1.0:
            raise ConfigError(
                f"Candidates need count >= 2 and an edit in [0, 1], found count={count} and edit={scale}."
            )
        self.count, self.steps, self.scale = count, steps, scale
        self.critic_dim = action_dim * steps
        self.dim, self.ctx_dim = self.critic_dim + 1, count * self.critic_dim

    def candidates(self, ctx: Float[Tensor, "b ctx"]) -> Float[Tensor, "b n k"]:
        """The draws of the base; a view."""
        return ctx.view(len(ctx), self.count, self.critic_dim)

    def edited(self, base: Float[Tensor, "... k"], edit: Float[Tensor, "... k"]) -> Float[Tensor, "... k"]:
        """The chunk that is executed for a draw and an edit in [-1, 1]."""
        return (base + self.scale * edit).clamp(-1.0, 1.0)

    def chosen(self, index: Int[Tensor, " b"], edit: Float[Tensor, "b k"]) -> Float[Tensor, "b dim"]:
        """u of a draw's number and an edit."""
        return torch.cat([edit, (index / (self.count - 1)).to(edit).unsqueeze(-1)], dim=-1)

    def to_critic(self, u: Float[Tensor, "b dim"], ctx: Float[Tensor, "b ctx"]) -> Float[Tensor, "b k"]:
        index = (u[:, -1].abs() * (self.count - 1)).round().long()
        base = self.candidates(ctx)[torch.arange(len(u), device=u.device), index]
        return self.edited(base, u[:, :-1])

    def config(self) -> dict[str, Any]:
        """Arguments that rebuild this map, beside the action's dimension."""
        return {"steps": self.steps, "count": self.count, "scale": self.scale}


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
