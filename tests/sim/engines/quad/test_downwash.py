"""Downwash: the published formula by hand, affected drones, and its gradient."""

from __future__ import annotations

import math

import pytest
import torch

from robo_rl.core.errors import ConfigError
from sim.engines.quad.craft import GRAVITY_M_S2, load_craft
from sim.engines.quad.downwash import check_downwash, downwash
from sim.engines.quad.layout import POS, QUAT, start

CRAFT = load_craft("cf2x_gym")


def test_downwash_matches_hand_computation() -> None:
    """1 m below: 2267.18 (0.0231348 / 4)^2 = 75.84 mN; 5 cm beside that, exp(-1/2 (0.05 / 0.05)^2) of it."""
    state = start(4)
    state[POS] = torch.tensor([[0.0, 0.0, 0.0, 0.05], [0.0] * 4, [2.0, 1.0, 2.0, 1.0]])
    force = downwash(state, 2, CRAFT)
    assert force[2].tolist() == pytest.approx([0.0, -0.07584, 0.0, -0.07584 * math.exp(-0.5)], rel=1e-3)
    assert force[0:2].abs().max() == 0.0
    assert force[3:].abs().max() == 0.0


def test_it_pushes_along_the_body_of_the_lower_craft() -> None:
    """Rolled by 90 degrees its body z axis lies along -y, so the push is along +y."""
    state = start(2)
    state[POS] = torch.tensor([[0.0, 0.0], [0.0, 0.0], [2.0, 1.0]])
    state[QUAT] = torch.tensor([[1.0, 0.0, 0.0, 0.0], [0.5**0.5, 0.5**0.5, 0.0, 0.0]]).T
    force = downwash(state, 2, CRAFT)[:, 1]
    assert force[1].item() == pytest.approx(0.07584, rel=1e-3)
    assert abs(force[2].item()) < 1e-6


def test_two_above_push_twice_and_never_more_than_the_weight() -> None:
    """Three in a column: the lowest is affected by both; at 5 cm the formula gives 30 N, limited to the
    craft's weight.
    """
    state = start(3)
    state[2] = torch.tensor([3.0, 2.0, 1.0])
    first = CRAFT.downwash[0] * (CRAFT.prop_radius_m / 4.0) ** 2
    assert downwash(state, 3, CRAFT)[2].tolist() == pytest.approx([0.0, -first, -first * 1.25], rel=1e-4)
    state[2] = torch.tensor([1.05, 1.0, 9.0])
    assert downwash(state, 3, CRAFT)[2, 1].item() == pytest.approx(-CRAFT.mass_kg * GRAVITY_M_S2, rel=1e-5)


def test_its_gradient_is_that_of_finite_differences() -> None:
    """Through positions and attitudes, in double precision; finite for two drones in the same place."""
    generator = torch.Generator().manual_seed(0)
    state = start(6).double()
    state[0:2] = 0.1 * torch.randn(2, 6, generator=generator)
    state[2] = 1.0 + torch.arange(6) * 0.9
    state[QUAT] += 0.1 * torch.randn(4, 6, generator=generator)
    assert torch.autograd.gradcheck(lambda x: downwash(x, 3, CRAFT), state.requires_grad_())
    same = start(2).requires_grad_()
    downwash(same, 2, CRAFT).sum().backward()
    assert same.grad is not None
    assert same.grad.isfinite().all()


def test_craft_without_downwash_coefficients_is_refused() -> None:
    """The message names the missing coefficients."""
    with pytest.raises(ConfigError, match="cf2x_gym"):
        check_downwash(load_craft("cf2x_l2f"))
