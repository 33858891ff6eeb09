"""Projections of returns onto the atoms of a categorical critic, worked by hand."""

from __future__ import annotations

import math

import pytest
import torch

from robo_rl.core.errors import ConfigError
from robo_rl.nets.support import Support

FIVE = Support(5, 0.0, 4.0)  # atoms 0, 1, 2, 3, 4


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (2.0, [0.0, 0.0, 1.0, 0.0, 0.0]),  # on an atom
        (2.25, [0.0, 0.0, 0.75, 0.25, 0.0]),  # between two: shares by distance
        (0.0, [1.0, 0.0, 0.0, 0.0, 0.0]),  # on the first, which has no lower neighbour
        (4.0, [0.0, 0.0, 0.0, 0.0, 1.0]),  # on the last, which has no upper one
        (9.0, [0.0, 0.0, 0.0, 0.0, 1.0]),  # outside: the nearest atom
        (-9.0, [1.0, 0.0, 0.0, 0.0, 0.0]),
    ],
)
def test_one_return_is_split_between_its_neighbours(value: float, expected: list[float]) -> None:
    found = FIVE.project(torch.tensor([[value]]), torch.ones(1, 1))
    assert found.tolist() == [expected]


def test_a_distribution_is_shifted_shrunk_and_projected() -> None:
    """r = 1, discount 0.5: atoms 0, 1, 2, 3, 4 go to 1, 1.5, 2, 2.5, 3.

    Weights 0.2, 0.1, 0.4, 0.1, 0.2: atom 1 gets 0.2 + 0.05, atom 2 gets 0.05 + 0.4 + 0.05, atom 3 the rest.
    """
    weights = torch.tensor([[0.2, 0.1, 0.4, 0.1, 0.2]])
    found = FIVE.project(1.0 + 0.5 * FIVE.values("cpu").unsqueeze(0), weights)
    torch.testing.assert_close(found, torch.tensor([[0.0, 0.25, 0.5, 0.25, 0.0]]))


def test_projection_keeps_mass_and_mean() -> None:
    """Random distributions inside the range: the sum is 1, and the mean is that of the returns."""
    rng = torch.Generator().manual_seed(0)
    support = Support(101, -10.0, 10.0)
    weights = torch.softmax(torch.randn(3, 50, 101, generator=rng), -1)
    returns = torch.rand(3, 50, 1, generator=rng) + 0.9 * support.values("cpu")
    found = support.project(returns, weights)
    torch.testing.assert_close(found.sum(-1), torch.ones(3, 50))
    torch.testing.assert_close(found @ support.values("cpu"), (weights * returns).sum(-1))


def test_the_sum_does_not_depend_on_the_order() -> None:
    """All mass falls on two atoms (a termination): any order of the terms gives the same bits."""
    rng = torch.Generator().manual_seed(0)
    weights = torch.softmax(torch.randn(20, 101, generator=rng), -1)
    returns, support = torch.full((20, 101), 0.123), Support(101, -10.0, 10.0)
    order = torch.randperm(101, generator=rng)
    assert torch.equal(support.project(returns, weights), support.project(returns, weights[:, order]))


def test_the_smoothed_histogram_is_a_gaussian_over_cells() -> None:
    """y = 2, width 0.75: the cell of atom 2 is y +- 0.5, so its share is erf(0.5 / (0.75 sqrt 2)), 0.495.

    The range ends at -0.5 and 4.5, which removes 0.086 % of the Gaussian.
    """
    found = FIVE.smooth(torch.tensor([2.0, 50.0]))
    inside = math.erf(2.5 / (0.75 * math.sqrt(2)))
    assert found[0, 2].item() == pytest.approx(math.erf(0.5 / (0.75 * math.sqrt(2))) / inside, rel=1e-5)
    torch.testing.assert_close(found.sum(-1), torch.ones(2))
    torch.testing.assert_close(found[0], found[0].flip(0))
    assert found[1].argmax() == 4


def test_the_mean_of_logits() -> None:
    """Equal logits: the middle of the range. All on one atom: that atom."""
    assert FIVE.mean(torch.zeros(5)).item() == pytest.approx(2.0)
    assert FIVE.mean(torch.tensor([0.0, 0.0, 0.0, 99.0, 0.0])).item() == pytest.approx(3.0)


@pytest.mark.parametrize("wrong", [(1, 0.0, 1.0), (5, 1.0, 1.0), (5, 0.0, math.inf), (5, math.nan, 1.0)])
def test_a_range_without_width_is_refused(wrong: tuple[int, float, float]) -> None:
    with pytest.raises(ConfigError, match="v_min < v_max"):
        Support(*wrong)
