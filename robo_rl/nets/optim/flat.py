"""All parameters of a module in one buffer.

For small networks on a CPU, the overhead per operation dominates: an optimiser step over twelve tensors has
twelve times the overhead of a step over one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from robo_rl.core.shapes import Float
from robo_rl.nets.optim.adam import StaticAdam


def flatten_parameters(module: nn.Module) -> Float[Tensor, " p"]:
    """Move the module's parameters into one vector, which is returned, and make them views of it.

    In-place changes of the vector change the module, and `load_state_dict` writes through to it.
    """
    parameters = list(module.parameters())
    flat = torch.cat([p.detach().flatten() for p in parameters])
    offset = 0
    for parameter in parameters:
        parameter.data = flat[offset : offset + parameter.numel()].view_as(parameter)
        offset += parameter.numel()
    return flat


def flat_gradient(loss: Tensor, module: nn.Module, out: Tensor | None = None) -> Float[Tensor, " p"]:
    """d loss / d parameters as one vector, in `out` if given. Sets no `.grad` in the networks of the loss."""
    gradients: Sequence[Tensor] = torch.autograd.grad(loss, list(module.parameters()))
    return torch.cat([g.flatten() for g in gradients], out=out)


@runtime_checkable
class Constrained(Protocol):
    """A module whose parameters obey a constraint, which `project_weights` restores in place."""

    def project_weights(self) -> None: ...


class FlatAdam(StaticAdam):
    """Adam over all parameters of one module as a single vector, `flat`. After every step its constrained
    parts are projected.

    clip: bound on the gradient's norm; 0: none.
    """

    def __init__(
        self, module: nn.Module, lr: float, clip: float = 0.0, weight_decay: float = 0.0, beta2: float = 0.999
    ) -> None:
        self.module, self.clip = module, clip
        self.flat = flatten_parameters(module)
        self._constrained = [part for part in module.modules() if isinstance(part, Constrained)]
        super().__init__([self.flat], lr, weight_decay, beta2)

    def descend(self, loss: Tensor) -> None:
        """One step down the gradient of `loss` in the module's parameters."""
        flat_gradient(loss, self.module, out=self.flat.grad)
        self.descend_gradient()

    def descend_gradient(self) -> None:
        """One step down the gradient in `flat.grad`."""
        if self.clip > 0.0:
            nn.utils.clip_grad_norm_(self.parameters, self.clip)
        self.step()
        for part in self._constrained:
            part.project_weights()

    def gradients(self) -> dict[nn.Parameter, Tensor]:
        """Every parameter's part of `flat.grad`, as a view of its shape."""
        assert self.flat.grad is not None
        parameters = list(self.module.parameters())
        parts = self.flat.grad.split([p.numel() for p in parameters])
        return {p: part.view_as(p) for p, part in zip(parameters, parts, strict=True)}
