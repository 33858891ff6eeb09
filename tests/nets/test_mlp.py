"""MLPs: zero start, LayerNorm, names."""

from __future__ import annotations

import pytest
import torch

from robo_rl.core.errors import UnknownNameError
from robo_rl.nets.mlp import mlp


def test_zero_last_starts_at_exactly_zero() -> None:
    """A residual head with zero_last must leave its base unchanged bit for bit."""
    net = mlp(5, (16, 16), 3, layer_norm=True, zero_last=True)
    assert net(torch.randn(7, 5)).eq(0).all()


def test_parameter_count_by_hand() -> None:
    """(4*8 + 8) + LayerNorm 2*8 + (8*3 + 3) = 83."""
    assert sum(p.numel() for p in mlp(4, (8,), 3, layer_norm=True).parameters()) == 83


def test_unknown_activation_names_the_known_ones() -> None:
    """A mistyped name must not become a KeyError traceback."""
    with pytest.raises(UnknownNameError, match="Did you mean 'relu'"):
        mlp(2, (4,), 1, activation="rellu")
