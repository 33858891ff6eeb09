"""States of any rate, with jitter, drift and gaps, against the control rate of a bundle."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hardware.loop.decision_clock import DecisionClock
from hardware.safety.timing import SILENT_FLIGHT_PERIODS

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
    "hz", [30, 50, 90, 99, 99.9, 100, 110, 120, 125, 130, 150, 180, 200, 201, 240, 250, 500, 1000]
)
def test_mean_rate_is_the_bundles_or_that_of_slower_states(hz: float, jitter: float, seed: int) -> None:
    """At most the state at hand is lost; a decision waits for at most two states, or one period and one."""
    at_s = decided(states(hz, jitter, seed))
    assert len(at_s) == pytest.approx(_FOR_S * min(hz, _CONTROL_HZ), rel=0.005)
    between_s = np.diff(at_s)
    assert between_s.min() >= 0.5 / _CONTROL_HZ - 1e-9
    interval_s = (1.0 + jitter) / hz
    assert between_s.max() <= max(interval_s, 1.0 / _CONTROL_HZ) + interval_s + 1e-9


@given(st.floats(0.5, 10.0), st.floats(0.0, 0.2), st.integers(0, 10_000))
@settings(max_examples=60, deadline=None)
def test_filter_holds_for_no_gap_between_decisions(rate: float, jitter: float, seed: int) -> None:
    """States at 50 to 1000 % of the control rate, up to a fifth of a period late: the flight filter would
    hold after 2.5 periods without a command. The mean rate is within 5 % of the bundle's if states suffice.
    """
    at_s = decided(states(rate * _CONTROL_HZ, jitter * rate, seed))
    assert np.diff(at_s).max() * _CONTROL_HZ <= SILENT_FLIGHT_PERIODS - 0.25
    mean = (len(at_s) - 1) / (at_s[-1] - at_s[0]) / _CONTROL_HZ
    assert 0.995 * min(rate, 1.0) <= mean <= 1.055


def test_jitter_of_states_at_the_control_rate_costs_no_decision() -> None:
    """A fifth of a period early or late: each state is decided on."""
    at_s = states(_CONTROL_HZ, 0.2)
    assert decided(at_s).tolist() == at_s.tolist()


@pytest.mark.parametrize("hz", [100.1, 100.2, 101.0, 102.0, 103.0, 104.5])
def test_slightly_faster_states_are_all_decided_on(hz: float) -> None:
    """A state left out per beat would leave a gap of two periods, 20 ms; here with jitter of 1 ms."""
    at_s = states(hz, 0.1)
    assert decided(at_s).tolist() == at_s.tolist()


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
