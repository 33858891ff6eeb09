"""All parameters of a module in one buffer.

For small networks on a CPU, the overhead per operation dominates: an optimiser step over twelve tensors has
twelve times the overhead of a step over one.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from robo_rl.core.shapes import Float


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


def flat_gradient(loss: Tensor, module: nn.Module) -> Float[Tensor, " p"]:
    """d loss / d parameters as one vector. Sets no `.grad` in the networks of the loss."""
    gradients: Sequence[Tensor] = torch.autograd.grad(loss, list(module.parameters()))
    return torch.cat([g.flatten() for g in gradients])


class FlatAdam:
    """Adam over all parameters of one module as a single vector. clip: bound on the gradient's norm; 0:
    none.
    """

    def __init__(self, module: nn.Module, lr: float, clip: float = 0.0) -> None:
        self.module, self.clip = module, clip
        self.flat = flatten_parameters(module)
        self.optimizer = torch.optim.Adam([self.flat], lr=lr, fused=True)

    def step(self, loss: Tensor) -> None:
        """One step down the gradient of `loss` in the module's parameters."""
        self.flat.grad = flat_gradient(loss, self.module)
        if self.clip > 0.0:
            nn.utils.clip_grad_norm_([self.flat], self.clip)
        self.optimizer.step()

    def set_lr(self, lr: float) -> None:
        """Change the learning rate."""
        self.optimizer.param_groups[0]["lr"] = lr

    def restart(self) -> None:
        """Reset the moments."""
        self.optimizer.state.clear()

    def state_dict(self) -> dict[str, Any]:
        """Copy of the moments."""
        return copy.deepcopy(self.optimizer.state_dict())

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore moments of `state_dict`."""
        self.optimizer.load_state_dict(dict(state))
