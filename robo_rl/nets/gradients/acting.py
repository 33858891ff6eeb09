"""Actors and critics in machine code, for acting: `nets.actor` and `nets.critic` without gradients.

Thousands of rows are evaluated in blocks, whose intermediate results stay in cache.
"""

from __future__ import annotations

import torch
from torch import Tensor

from robo_rl.core.shapes import Float
from robo_rl.nets.actor import Actor, GaussianActor
from robo_rl.nets.critic import CriticEnsemble, bounds
from robo_rl.nets.gradients.compiled import CompiledStack
from robo_rl.nets.gradients.gaussian import DeviationRange, draw
from robo_rl.nets.gradients.layer import Scratch
from robo_rl.nets.gradients.stack import ensemble_stack, sequential_stack


class CompiledActor:
    """`mode` of an actor."""

    def __init__(self, stack: CompiledStack, dim: int) -> None:
        self.stack, self.dim = stack, dim

    def mode(self, x: Float[Tensor, "b i"]) -> Float[Tensor, "b d"]:
        """The deterministic action."""
        return torch.tanh(self.stack.evaluate(x)[0, :, : self.dim])


class CompiledGaussian(CompiledActor):
    """`mode` and `sample` of a Gaussian actor. deviation: its range."""

    def __init__(self, stack: CompiledStack, dim: int, deviation: DeviationRange) -> None:
        super().__init__(stack, dim)
        self.deviation = deviation

    def sample(
        self, x: Float[Tensor, "b i"], eps: Float[Tensor, "b d"]
    ) -> tuple[Float[Tensor, "b d"], Float[Tensor, " b"]]:
        """(u, its log-density), see `GaussianActor.sample`."""
        drawn = draw(self.stack.evaluate(x)[0], self.deviation, eps)
        return drawn.u, drawn.log_prob


class CompiledCritic:
    """`compare` of an ensemble of critics."""

    def __init__(self, stack: CompiledStack, critic: CriticEnsemble) -> None:
        self.stack, self.critic = stack, critic

    def compare(
        self,
        x: Float[Tensor, "b i"],
        first: Float[Tensor, "b a"],
        second: Float[Tensor, "b a"],
        margin: float = 0.0,
    ) -> tuple[Float[Tensor, " b"], Float[Tensor, " b"]]:
        """(lower bound of Q for `first`, upper bound for `second`), see `CriticEnsemble.compare`."""
        both = [self.critic.q(self.stack.evaluate(x, action)) for action in (first, second)]
        return bounds(torch.stack(both, dim=1), margin)


def compiled_actor(actor: Actor, scratch: Scratch) -> CompiledActor | None:
    """The actor in machine code; None where it is not supported."""
    stack = sequential_stack(actor.net, scratch)
    if not isinstance(stack, CompiledStack) or not actor.config.squash:
        return None
    if isinstance(actor, GaussianActor):
        return CompiledGaussian(stack, actor.config.dim, DeviationRange(actor))
    return CompiledActor(stack, actor.config.dim)


def compiled_critic(critic: CriticEnsemble, scratch: Scratch) -> CompiledCritic | None:
    """The critics in machine code; None where they are not supported."""
    stack = ensemble_stack(critic, scratch)
    return CompiledCritic(stack, critic) if isinstance(stack, CompiledStack) else None
