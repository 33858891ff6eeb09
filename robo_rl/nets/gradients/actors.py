"""Passes of actors, written out: `mode` or `sample`, and the gradient of the weights. See `nets.actor`."""

from __future__ import annotations

import torch
from torch import Tensor

from robo_rl.core.shapes import Float
from robo_rl.nets.actor import Actor, GaussianActor
from robo_rl.nets.gradients.gaussian import DeviationRange, Draw, draw
from robo_rl.nets.gradients.layer import Scratch
from robo_rl.nets.gradients.stack import AnyStack, sequential_stack
from robo_rl.nets.optim.flat import FlatAdam


class GaussianPasses:
    """`sample` of a `GaussianActor`, and `backward` of the last sample. deviation: its range."""

    def __init__(self, stack: AnyStack, deviation: DeviationRange) -> None:
        self.stack, self._deviation = stack, deviation
        self._drawn: Draw

    def sample(
        self, x: Float[Tensor, "b i"], eps: Float[Tensor, "b d"]
    ) -> tuple[Float[Tensor, "b d"], Float[Tensor, " b"]]:
        """(u, its log-density), see `GaussianActor.sample`."""
        self._drawn = draw(self.stack.forward(x)[0], self._deviation, eps)
        return self._drawn.u, self._drawn.log_prob

    def backward(self, du: Float[Tensor, "b d"], dlog_prob: Tensor) -> None:
        """Write the gradients of the weights. dlog_prob: one number for all rows."""
        self.stack.backward(self._drawn.gradient(du, dlog_prob).unsqueeze(0))


class DeterministicPasses:
    """`mode` of a `DeterministicActor`, and `backward` of the last one."""

    def __init__(self, stack: AnyStack) -> None:
        self.stack = stack
        self._u: Tensor

    def mode(self, x: Float[Tensor, "b i"]) -> Float[Tensor, "b d"]:
        """The action, u = tanh(net(x))."""
        self._u = torch.tanh(self.stack.forward(x)[0])
        return self._u

    def backward(self, du: Float[Tensor, "b d"]) -> None:
        """Write the gradients of the weights."""
        self.stack.backward(torch.ops.aten.tanh_backward(du, self._u).unsqueeze(0))


ActorPasses = GaussianPasses | DeterministicPasses


def actor_passes(actor: Actor, scratch: Scratch, optimizer: FlatAdam | None = None) -> ActorPasses | None:
    """Passes of an actor; None where its layers are not supported. optimizer: holds the gradients."""
    stack = sequential_stack(actor.net, scratch, optimizer)
    if stack is None or not actor.config.squash:
        return None
    if isinstance(actor, GaussianActor):
        return GaussianPasses(stack, DeviationRange(actor))
    return DeterministicPasses(stack)
