"""Multi-layer perceptrons, shared by denoisers, actors and heads."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from robo_rl.core.errors import UnknownNameError

_ACTIVATIONS: dict[str, type[nn.Module]] = {
    "relu": nn.ReLU,
    "mish": nn.Mish,
    "silu": nn.SiLU,
    "gelu": nn.GELU,
    "tanh": nn.Tanh,
}


def activation_module(name: str) -> nn.Module:
    """A fresh activation layer. Raises UnknownNameError for a name that is not in the table."""
    if name not in _ACTIVATIONS:
        raise UnknownNameError("activation", name, _ACTIVATIONS)
    return _ACTIVATIONS[name]()


def mlp(
    in_dim: int,
    hidden: Sequence[int],
    out_dim: int,
    *,
    layer_norm: bool = False,
    activation: str = "relu",
    zero_last: bool = False,
) -> nn.Sequential:
    """(b, in_dim) -> (b, out_dim). Each hidden layer is Linear, LayerNorm (optional) and activation; the last
    is Linear.

    zero_last: initialise the last layer to zero, so the output is exactly 0 before the first update.
    """
    layers: list[nn.Module] = []
    for width in hidden:
        layers.append(nn.Linear(in_dim, width))
        if layer_norm:
            layers.append(nn.LayerNorm(width))
        layers.append(activation_module(activation))
        in_dim = width
    last = nn.Linear(in_dim, out_dim)
    if zero_last:
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)
    return nn.Sequential(*layers, last)
