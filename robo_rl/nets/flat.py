"""All parameters of a module in one buffer.

Small networks on a CPU spend more time starting operations than doing them: an optimiser step over twelve
tensors costs twelve times the overhead of a step over one.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn


def flatten_parameters(module: nn.Module) -> Float[Tensor, " p"]:
    """Move the module's parameters into one vector and make them views of it. Returns the vector.

    In-place changes of the vector are changes of the module, and `load_state_dict` writes through to it.
    """
    parameters = list(module.parameters())
    flat = torch.cat([p.detach().flatten() for p in parameters])
    offset = 0
    for parameter in parameters:
        parameter.data = flat[offset : offset + parameter.numel()].view_as(parameter)
        offset += parameter.numel()
    return flat


def flat_gradient(loss: Tensor, module: nn.Module) -> Float[Tensor, " p"]:
    """d loss / d parameters as one vector; leaves no `.grad` in the networks that the loss passed through."""
    gradients: Sequence[Tensor] = torch.autograd.grad(loss, list(module.parameters()))
    return torch.cat([g.flatten() for g in gradients])
