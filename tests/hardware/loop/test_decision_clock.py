"""States of any rate, with jitter, drift and gaps, against the control rate of a bundle."""

from __future__ import annotations

import numpy as np
import pytest

from hardware.loop.decision_clock import DecisionClock

_CONTROL_HZ, _FOR_S = 100.0, 10.0


def decided(received_s: np.ndarray) -> np.ndarray:
    """Times of the states that are decided on."""
    clock = DecisionClock(1.0 / _CONTROL_HZ)
    return np.array([at_s for at_s in received_s.tolist() if clock.decides(at_s)])


def states(hz: float, jitter: float = 0.0, seed: int = 0) -> np.ndarray:
    """Receive times [s]; jitter: largest delay in intervals of the states."""
    count = round(_FOR_S * hz)
    delay = np.random.default_rng(seed).uniform(0.0, jitter, count)
    return np.sort((np.arange(count) + delay) / hz)


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("jitter", [0.0, 0.05, 0.2, 0.4])
@pytest.mark.parametrize(
    "hz", [30, 50, 90, 99, 99.9, 100, 100.1, 101, 110, 120, 125, 130, 150, 180, 200, 201, 240, 250, 500, 1000]
)  # fmt: skip
def test_mean_rate_is_the_bundles_or_that_of_slower_states(hz: float, jitter: float, seed: int) -> None:
    """At most the state at hand is lost; a decision waits for at most two states, or one period and one."""
    at_s = decided(states(hz, jitter, seed))
    assert len(at_s) == pytest.approx(_FOR_S * min(hz, _CONTROL_HZ), rel=0.005)
    between_s = np.diff(at_s)
    assert between_s.min() >= 0.5 / _CONTROL_HZ - 1e-9
    interval_s = (1.0 + jitter) / hz
    assert between_s.max() <= max(interval_s, 1.0 / _CONTROL_HZ) + interval_s + 1e-9


def test_jitter_of_states_at_the_control_rate_costs_no_decision() -> None:
    """A fifth of a period early or late: each state is decided on."""
    at_s = states(_CONTROL_HZ, 0.2)
    assert decided(at_s).tolist() == at_s.tolist()


@pytest.mark.parametrize("drift", [-1e-3, -1e-4, 1e-4, 1e-3])
def test_drifting_clock_of_the_estimator_skips_one_state_per_period_of_drift(drift: float) -> None:
    """An estimator whose clock runs fast by 0.1 % has 10 states too many in 100 s, with jitter as well."""
    count = 10_000
    delay = np.random.default_rng(0).uniform(0.0, 0.2, count)
    at_s = (np.arange(count) + delay) / (_CONTROL_HZ * (1.0 + drift))
    assert count - len(decided(at_s)) == pytest.approx(max(0.0, drift) * count, abs=1)


@pytest.mark.parametrize("hz", [100.0, 120.0, 1000.0])
@pytest.mark.parametrize("gap_s", [0.012, 0.03, 1.0, 3600.0])
def test_gap_is_not_made_up_for(hz: float, gap_s: float) -> None:
    """After states were lost, decisions go on at the control rate, with at most one of those lost."""
    before_s = states(hz)
    after_s = before_s[-1] + gap_s + states(hz)
    at_s = decided(np.concatenate([before_s, after_s]))
    late_s = at_s[at_s >= after_s[0]] - after_s[0]
    assert late_s[0] <= 0.02
    assert np.diff(at_s).min() >= 0.5 / _CONTROL_HZ - 1e-9
    assert (late_s < 1.0).sum() == pytest.approx(_CONTROL_HZ, abs=2)


def test_clock_that_runs_backwards_begins_anew() -> None:
    at_s = states(1000.0)
    again = decided(np.concatenate([at_s + 50.0, at_s]))
    assert again[np.flatnonzero(np.diff(again) < 0.0)[0] + 1] == 0.0
    assert len(again) == pytest.approx(2.0 * _FOR_S * _CONTROL_HZ, abs=2)


def test_bursts_are_not_decided_on_twice() -> None:
    """States that a link delivers in pairs, 1 ms apart, give one decision per pair."""
    pairs = np.arange(500) / 50.0
    assert len(decided(np.sort(np.concatenate([pairs, pairs + 0.001])))) == 500
