"""A craft in the air falls by no wrong height of its estimator, and one on the ground stops its motors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hardware.messages import FlightCommand, Odometry
from hardware.safety.flight import FlightFilter, FlightPhase
from hardware.safety.landing import RatesLander
from hardware.safety.reasons import Reason
from robo_rl.core.errors import ConfigError
from robo_rl.core.flight.envelope import FlightEnvelope

ENVELOPE = FlightEnvelope(1.0, 20.0, 5.0, (-3.0, -3.0, -1.4), (3.0, 3.0, 3.0))
GROUND_M, HIGH_M, DT_S = -0.4, 2.0, 0.01
OFF, HOVER = np.zeros(4), np.array([0.5, 0.0, 0.0, 0.0])


class Flight:
    """A craft that hovers at the height that `step` tells, or that its estimator tells wrongly."""

    def __init__(self) -> None:
        self.filter = FlightFilter(ENVELOPE, RatesLander(0.5), 1 / DT_S, 1 / DT_S, "rates", GROUND_M)
        self.now_s = 0.0
        self._hear(HIGH_M)
        assert self.filter.arm(0.0)[0]
        self.step(HIGH_M)

    def _hear(self, height_m: float) -> None:
        position, level = np.array([0.0, 0.0, height_m]), np.array([1.0, 0.0, 0.0, 0.0])
        self.filter.on_state(Odometry(0.0, position, level, np.zeros(3), np.zeros(3)), self.now_s)

    def step(self, *heights_m: float, after_s: float = DT_S) -> Any:
        """What is sent after these states, one per period, while the policy commands its hover thrust."""
        out = None
        for height_m in heights_m:
            self.now_s += after_s
            self._hear(height_m)
            self.filter.on_command(FlightCommand(1.0 + self.now_s, HOVER), self.now_s)
            out = self.filter.tick(self.now_s)
        return out

    @property
    def is_cut(self) -> bool:
        return self.filter.phase in (FlightPhase.CUTTING, FlightPhase.DISARMED)


@pytest.mark.parametrize("wrong_m", [GROUND_M, -1.3, -5.0, -1e6])
@pytest.mark.parametrize("lands", [False, True])
@pytest.mark.parametrize("states", [1, 2])
def test_one_or_two_wrong_heights_do_not_cut_the_motors(wrong_m: float, lands: bool, states: int) -> None:
    """At 2 m, flying or landing; a height below the fence lands the craft, but does not drop it."""
    flight = Flight()
    if lands:
        flight.filter.stop()
    for _ in range(3):  # counted anew each time
        out = flight.step(*[wrong_m] * states)
        assert not flight.is_cut
        assert out[0] > 0.4
        assert flight.step(HIGH_M)[0] > 0.4
    assert Reason.LANDED not in flight.filter.counts


def test_craft_on_the_ground_is_cut_at_its_third_low_state() -> None:
    """20 ms after the first one, at 100 Hz."""
    flight = Flight()
    flight.filter.stop()
    flight.step(GROUND_M + 0.04, GROUND_M + 0.03)
    assert not flight.is_cut
    assert np.array_equal(flight.step(GROUND_M + 0.02), OFF)
    assert flight.filter.reason is Reason.LANDED


def test_rare_low_states_are_believed_from_the_second_on() -> None:
    flight = Flight()
    flight.filter.stop()
    flight.step(GROUND_M)
    assert np.array_equal(flight.step(GROUND_M, after_s=0.06), OFF)
    assert flight.filter.reason is Reason.LANDED


def test_craft_that_never_took_off_is_cut_at_once() -> None:
    """States from before the landing confirm that it stands on the ground."""
    flight = Flight()
    flight.step(*[GROUND_M] * 5)
    flight.filter.stop()
    assert np.array_equal(flight.step(GROUND_M), OFF)


def test_landing_ends_when_the_states_end_at_the_first_low_one() -> None:
    """The estimator falls silent at touch-down: motors off within 0.6 s, as for any silence."""
    flight = Flight()
    flight.filter.stop()
    flight.step(GROUND_M)
    for _ in range(60):
        flight.now_s += DT_S
        flight.filter.tick(flight.now_s)
    assert flight.is_cut
    assert flight.filter.reason is Reason.BLIND


@settings(max_examples=300, deadline=None, derandomize=True, database=None)
@given(st.lists(st.tuples(st.booleans(), st.sampled_from([0.004, DT_S, 0.02, 0.06])), max_size=30))
def test_landing_is_cut_exactly_when_low_states_agree(states: list[tuple[bool, float]]) -> None:
    """Three in a row, or two over 50 ms, whatever came before them."""
    flight, low_s = Flight(), list[float]()
    flight.filter.stop()
    for is_low, after_s in states:
        flight.step(GROUND_M + 0.01 if is_low else HIGH_M, after_s=after_s)
        low_s = [*low_s, flight.now_s] if is_low else []
        agrees = len(low_s) > 2 or (len(low_s) == 2 and low_s[1] - low_s[0] >= 0.05)
        assert flight.is_cut == agrees
        if agrees:
            return


@pytest.mark.parametrize("ground_m", [float("inf"), float("-inf"), float("nan")])
def test_a_ground_without_a_height_is_refused(ground_m: float) -> None:
    """With inf, a landing began by cutting the motors at any height."""
    with pytest.raises(ConfigError, match="give the height of the ground, a finite number"):
        FlightFilter(ENVELOPE, RatesLander(0.5), 100.0, 100.0, "rates", ground_m)
