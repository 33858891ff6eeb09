"""Action maps: executed actions and noise, computed by hand."""

from __future__ import annotations

import pytest
import torch

from robo_rl.core.action_map import DirectMap, LatentMap, ResidualMap, cosine_basis
from robo_rl.core.errors import ConfigError


def test_residual_is_scaled_and_clamped() -> None:
    """0.9 + 0.2 * 1 leaves the range and stops at 1; -0.5 - 0.2 * 0.5 does not."""
    out = ResidualMap(2, 0.2).to_critic(torch.tensor([[1.0, -0.5]]), torch.tensor([[0.9, -0.5]]))
    torch.testing.assert_close(out, torch.tensor([[1.0, -0.6]]))


def test_zero_residual_is_the_base_to_the_last_bit() -> None:
    """Promise 1: any base action in [-1, 1] passes through unchanged."""
    base = torch.rand(1000, 3) * 2.0 - 1.0
    assert torch.equal(ResidualMap(3, 0.3).to_critic(torch.zeros(1000, 3), base), base)


@pytest.mark.parametrize("rank", [None, 2])
def test_zero_steering_is_the_origin(rank: int | None) -> None:
    """u = 0 gives zero noise from origin zero, and the caller's noise bit for bit from origin gaussian."""
    noise = torch.randn(7, 24)
    zero, gaussian = LatentMap(8, 3, 1.5, "zero", rank), LatentMap(8, 3, 1.5, "gaussian", rank)
    assert torch.equal(zero.to_noise(torch.zeros(7, zero.dim), torch.zeros(7, 0)), torch.zeros(7, 8, 3))
    assert torch.equal(gaussian.to_noise(torch.zeros(7, gaussian.dim), noise), noise.view(7, 8, 3))


def test_full_steering_reaches_the_magnitude_everywhere() -> None:
    """Every element of the chunk is free; one vector repeated over time would not be."""
    u = torch.rand(5, 24) * 2.0 - 1.0
    assert torch.equal(LatentMap(8, 3, 2.0).to_noise(u, torch.zeros(5, 0)), 2.0 * u.view(5, 8, 3))


def test_low_rank_basis_is_orthogonal_smooth_and_keeps_the_rms() -> None:
    """Columns of the DCT-II: orthogonal, the first constant; random u keep their mean square."""
    basis = cosine_basis(16, 4)
    torch.testing.assert_close(basis.T @ basis, 4.0 * torch.eye(4), atol=1e-5, rtol=0.0)
    assert basis[:, 0].std() < 1e-6
    u = torch.randn(4, 20_000, generator=torch.Generator().manual_seed(0))
    assert abs((basis @ u).square().mean().item() - 1.0) < 0.03


@pytest.mark.parametrize(
    ("build", "word"),
    [
        (lambda: ResidualMap(2, 0.0), "scale"),
        (lambda: ResidualMap(2, 1.5), "scale"),
        (lambda: LatentMap(8, 2, 0.0), "magnitude"),
        (lambda: LatentMap(8, 2, 1.0, rank=9), "rank"),
    ],
)
def test_values_that_make_no_map_are_refused_by_name(build: object, word: str) -> None:
    """The error names the setting."""
    with pytest.raises(ConfigError, match=word):
        build()  # type: ignore[operator]


def test_direct_passes_through() -> None:
    """Without a base the critic's action is the actor's output."""
    u = torch.randn(3, 2)
    assert DirectMap(2).to_critic(u, torch.zeros(3, 0)) is u


def test_low_rank_shifts_are_smooth_over_the_chunk() -> None:
    """Rank 2 of 8: neighbouring steps differ little, where the full map may jump from -1 to 1."""
    u = torch.rand(200, 2, generator=torch.Generator().manual_seed(0)) * 2.0 - 1.0
    noise = LatentMap(8, 1, 1.0, rank=2).to_noise(u, torch.zeros(200, 0)).squeeze(2)
    assert noise.diff(dim=1).abs().max() < 0.5 * noise.abs().max()


@pytest.mark.wrong_types
def test_the_origin_is_zero_or_gaussian() -> None:
    """Any other value would silently select the second branch."""
    with pytest.raises(ConfigError, match="gausian"):
        LatentMap(8, 2, 1.0, "gausian")  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0])
def test_magnitudes_are_numbers(value: float) -> None:
    """NaN passes a test for "below zero"."""
    with pytest.raises(ConfigError, match="magnitude"):
        LatentMap(8, 2, value)
    with pytest.raises(ConfigError, match="scale"):
        ResidualMap(2, value)
