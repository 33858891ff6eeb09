"""Seeds and noise depend on names and counters only."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from robo_rl.core.seeding import MAX_SEED, derive_seed, episode_noise, generator


@given(st.lists(st.one_of(st.integers(), st.text(max_size=8)), max_size=4))
def test_a_derived_seed_is_one_that_every_environment_takes(path: list[int | str]) -> None:
    """Non-negative, 31 bits, and the same for the same path."""
    seed = derive_seed(*path)
    assert 0 <= seed < MAX_SEED
    assert derive_seed(*path) == seed


def test_a_seed_is_the_same_on_every_machine() -> None:
    """Fixed values: results must stay comparable over years when a library changes."""
    assert derive_seed("eval", 0, 0) == 1945180267
    torch.testing.assert_close(
        episode_noise(7, 1, (1, 2)), torch.tensor([[[-0.2933, 1.7038]]]), atol=1e-4, rtol=0.0
    )


def test_names_and_positions_matter() -> None:
    """("a", 1) differs from (1, "a"), and neighbouring seeds are unrelated."""
    assert len({derive_seed("a", 1), derive_seed(1, "a"), derive_seed("a", 2), derive_seed("b", 1)}) == 4


def test_noise_of_a_decision_does_not_depend_on_how_many_there_are() -> None:
    """Row d belongs to decision d, whether 3 or 64 rows are drawn: policies are paired by it."""
    assert torch.equal(episode_noise(5, 64, (8, 4))[:3], episode_noise(5, 3, (8, 4)))


def test_noise_is_standard_normal() -> None:
    """Mean 0 and variance 1 within four standard errors of 100,000 draws."""
    noise = episode_noise(1, 100, (100, 10))
    assert abs(noise.mean()) < 4 / 100_000**0.5
    assert abs(noise.var() - 1.0) < 4 * (2 / 100_000) ** 0.5


def test_generators_of_one_path_draw_alike() -> None:
    """A restored run rebuilds its generators by name."""
    first, second = (torch.rand(5, generator=generator("learner", 3)) for _ in range(2))
    assert torch.equal(first, second)
    assert not torch.equal(first, torch.rand(5, generator=generator("replay", 3)))
