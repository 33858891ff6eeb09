"""Mixing of replay buffers by fraction."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st

from robo_rl.core.action_map import DirectMap
from robo_rl.core.lanes import Lanes
from robo_rl.data.replay import Replay
from robo_rl.rl.mix import ReplayMix, shares
from tests.rl.worlds import widths


@given(st.integers(0, 300), st.lists(st.floats(0.01, 1.0), min_size=1, max_size=4))
def test_shares_are_non_negative_integers_with_the_right_sum(size: int, fractions: list[float]) -> None:
    """Rounding each fraction separately can exceed the batch: .3, .3, .3, .1 of 5 gave 2, 2, 2 and -1."""
    counts = shares(size, fractions)
    assert sum(counts) == size
    total = sum(fractions)
    for count, fraction in zip(counts, fractions, strict=True):
        assert count >= 0
        assert abs(count - size * fraction / total) < 1.0 + 1e-6


def filled(name: float, count: int = 6) -> Replay:
    """Each observation identifies its buffer."""
    store = Replay(20, 1, widths(DirectMap(1)))
    for _ in range(count):
        values = {key: torch.full((1, width), name) for key, width in widths(DirectMap(1)).items()}
        values |= {key: torch.zeros(1) for key in ("reward", "demo")} | {"steps": torch.ones(1)}
        values |= {key: torch.tensor([False]) for key in ("terminated", "truncated", "cut")}
        store.add(Lanes.all(1), values, 0.9)
    return store


def test_a_batch_holds_every_store_in_its_proportion() -> None:
    """64 of 128 from the demonstrations, 32 from the base, 32 from online."""
    mix = ReplayMix(
        {"online": filled(1.0), "base": filled(2.0), "demo": filled(3.0)},
        {"online": 0.25, "base": 0.25, "demo": 0.5},
    )
    batch = mix.sample(128, torch.Generator().manual_seed(0), gamma=0.9, n_step=3, timeout_is_failure=False)
    assert [int((batch.obs[:, 0] == name).sum()) for name in (1.0, 2.0, 3.0)] == [32, 32, 64]


def test_the_same_state_draws_the_same_batches() -> None:
    """Exact resume needs the buffers and the generator only."""
    stores = {"online": filled(1.0), "demo": filled(3.0)}
    mix = ReplayMix(stores, {"online": 0.5, "demo": 0.5})
    other = ReplayMix({"online": filled(0.0, 0), "demo": filled(0.0, 0)}, {"online": 0.5, "demo": 0.5})
    other.load_state_dict(mix.state_dict())
    batches = [
        each.sample(16, torch.Generator().manual_seed(4), gamma=0.9, n_step=2, timeout_is_failure=True)
        for each in (mix, other)
    ]
    for name in ("obs", "reward", "discount", "next_obs"):
        assert torch.equal(getattr(batches[0], name), getattr(batches[1], name))


def test_batches_drawn_together_hold_the_draws_of_one_large_sample() -> None:
    """Three batches of 16: each has its share of every store, and no draw is lost or repeated."""
    stores = {"online": filled(1.0), "demo": filled(3.0)}
    mix = ReplayMix(stores, {"online": 0.25, "demo": 0.75})
    how: dict[str, Any] = {"gamma": 0.9, "n_step": 2, "timeout_is_failure": False}
    batches = mix.batches(3, 16, torch.Generator().manual_seed(4), **how)
    rng = torch.Generator().manual_seed(4)
    whole = [stores[name].sample(3 * share, rng, **how) for name, share in (("online", 4), ("demo", 12))]
    for name in ("obs", "reward", "next_obs"):
        for part, rows in zip(whole, (slice(0, 4), slice(4, 16)), strict=True):
            found = torch.cat([getattr(batch, name)[rows] for batch in batches])
            assert torch.equal(found, getattr(part, name))
