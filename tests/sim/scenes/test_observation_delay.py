"""Delayed observations of worlds that start again: lane by lane, and by a mask."""

from __future__ import annotations

import torch

from robo_rl.eval.host_reads import HostReads
from sim.scenes.observation_delay import ObservationDelay

WORLDS, MOST = 5, 3


def test_worlds_that_start_by_mask_have_the_same_delayed_observations() -> None:
    """Random ends over many steps: equal to starts of single worlds, and nothing is read by the host."""
    rng = torch.Generator().manual_seed(0)
    rows, masked = ObservationDelay(MOST), ObservationDelay(MOST)
    first = {"state": torch.rand(WORLDS, 2, generator=rng)}
    delay = torch.randint(0, MOST + 1, (WORLDS,), generator=rng)
    for each in (rows, masked):
        each.begin(torch.arange(WORLDS), first, delay)
    for _ in range(40):
        obs = {"state": torch.rand(WORLDS, 2, generator=rng)}
        ended = torch.rand(WORLDS, generator=rng) < 0.3
        begun = {"state": torch.rand(WORLDS, 2, generator=rng)}
        delay = torch.randint(0, MOST + 1, (WORLDS,), generator=rng)
        expected = rows.push(obs)["state"]
        lanes = ended.nonzero()[:, 0]
        rows.begin(lanes, begun, delay[lanes])
        with HostReads().watching() as found:
            got = masked.push(obs)["state"]
            masked.begin_where(ended, begun, delay)
        assert torch.equal(got, expected)
        assert not found.reads
        assert not found.strays
        for key, value in rows.save().items():
            assert torch.equal(masked.save()[key], value), key


def test_without_a_delay_nothing_is_kept() -> None:
    """Observations pass through."""
    none, obs = ObservationDelay(0), {"state": torch.ones(2, 1)}
    none.begin_where(torch.tensor([True, False]), obs, torch.zeros(2, dtype=torch.long))
    assert none.push(obs) is obs
    assert none.save() == {}
