"""The quadcopter's filter: limits, the envelope, landing and motor cut, in the project's own flight
dynamics.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hardware.messages import FlightCommand, Odometry
from hardware.safety.flight import FlightFilter, FlightPhase
from hardware.safety.landing import CraftModel, Lander, MotorsLander, RatesLander
from hardware.safety.reasons import Reason
from robo_rl.core.errors import ConfigError
from sim.engines.quad.craft import load_craft
from sim.engines.quad.layout import POS, VEL
from tests.hardware.safety.flight_bench import CRAFT, DT_S, ENVELOPE, Flight, lean, model, odometry

STARTS: dict[str, dict[str, Any]] = {
    "hovering": {"position": [0.0, 0.0, -0.6]},
    "fast": {"velocity": [1.5, -1.0, 0.5], "position": [0.0, 0.0, -0.4]},
    "tumbling": {"quat": lean(0.58), "rates": [3.0, -2.0, 1.0], "position": [0.0, 0.0, -0.3]},
    "falling": {"velocity": [0.0, 0.0, -1.9], "position": [0.0, 0.0, 0.8]},
}


@pytest.mark.parametrize(
    ("craft", "start"),
    [("cf2x_l2f", "hovering"), ("cf21", "fast"), ("x500", "falling"),
     *((craft, "tumbling") for craft in ("cf2x_l2f", "cf21", "cf21_brushless", "racer5", "x500"))],
)  # fmt: skip
def test_fault_leads_to_a_landing(craft: str, start: str) -> None:
    """The policy falls silent, or the craft tumbles: level, at 0.3 m/s, motors off 5 cm above the ground."""
    flight = Flight(craft, **STARTS[start])
    flight.begin()
    speeds, tilts = [], []
    for _ in range(2000):
        if flight.fly() is None and flight.filter.phase is FlightPhase.DISARMED:
            break
        if flight.filter.phase is FlightPhase.LANDING:
            now = flight.odometry()
            speeds.append(now.velocity_body_m_s)
            tilts.append(1.0 - 2.0 * float(now.quat_wxyz[1] ** 2 + now.quat_wxyz[2] ** 2))
    assert flight.filter.reason is Reason.LANDED
    assert {Reason.NO_COMMAND, Reason.TILT} & flight.filter.counts.keys()
    assert np.linalg.norm(speeds[-1] - [0.0, 0.0, -0.3]) < 0.15
    assert tilts[-1] > math.cos(0.1)
    assert min(tilts) > math.cos(1.0)


@pytest.mark.parametrize(
    ("reason", "state"),
    [
        (Reason.TILT, odometry(quat=lean(0.65))),
        (Reason.FAST_ROTATION, odometry(rates=[0.0, 0.0, 8.5])),
        (Reason.SPEED, odometry(velocity=[1.5, 1.5, 0.0])),
        (Reason.FENCE, odometry([0.0, 1.01, 0.0])),
        (Reason.FENCE, odometry([0.0, 0.0, 1.01])),
    ],
)
def test_leaving_the_envelope_ends_the_policy_commands(reason: Reason, state: Odometry) -> None:
    """Also after the craft is inside again."""
    flight = Flight()
    flight.begin()
    flight.filter.on_state(state, flight.now_s)
    flight.tell(flight.hover())
    flight.filter.tick(flight.now_s)
    assert (flight.filter.phase, flight.filter.reason) == (FlightPhase.LANDING, reason)
    flight.fly(flight.hover())
    assert flight.filter.phase is FlightPhase.LANDING
    assert flight.filter.counts[Reason.NOT_ARMED] >= 1


def tipped(flight: Flight, states: int, after_s: float = DT_S) -> list[Any]:
    """Outputs of periods in each of which the estimator says 2.2 rad, beyond `cut_tilt_rad`."""
    flight.heard, outs = False, []
    for _ in range(states):
        flight.now_s += after_s
        flight.filter.on_state(odometry(quat=lean(2.2)), flight.now_s)
        flight.tell(flight.hover())
        outs.append(flight.filter.tick(flight.now_s))
    return outs


@pytest.mark.parametrize("states", [1, 2])
def test_wrong_attitude_of_one_or_two_states_does_not_end_a_flight(states: int) -> None:
    """Neither motors off nor a landing, and no command for an attitude that the craft does not have."""
    flight = Flight()
    flight.begin()
    outs = tipped(flight, states)
    assert all(out == pytest.approx(flight.hover()) for out in outs)
    flight.heard = True
    for _ in range(5):
        flight.fly(flight.hover())
    assert (flight.filter.phase, flight.filter.reason) == (FlightPhase.FLYING, None)
    assert flight.filter.counts[Reason.TILT_UNCONFIRMED] == states
    assert tipped(flight, 2)[-1] == pytest.approx(flight.hover())  # counted anew


def test_craft_that_tipped_over_is_cut_at_its_third_state() -> None:
    """20 ms after the first one, at 100 Hz."""
    flight = Flight()
    flight.begin()
    outs = tipped(flight, 3)
    assert [bool((out == -1.0).all()) for out in outs] == [False, False, True]
    assert flight.filter.reason is Reason.UPSIDE_DOWN


def test_rare_states_are_believed_from_the_second_on() -> None:
    """At 10 Hz a third one would come 0.2 s after the first, in which a craft falls by 0.6 m."""
    flight = Flight()
    flight.begin()
    outs = tipped(flight, 2, after_s=0.1)
    assert (outs[-1] == -1.0).all()


def test_tilt_is_confirmed_during_a_landing_too() -> None:
    """Otherwise one wrong state would drop a craft that lands."""
    flight = Flight()
    flight.begin()
    flight.filter.stop()
    tipped(flight, 1)
    assert flight.filter.phase is FlightPhase.LANDING
    tipped(flight, 2)
    assert flight.filter.reason is Reason.UPSIDE_DOWN


def test_motors_are_cut_upside_down() -> None:
    """Beyond 2.1 rad no thrust brings it back; "off" is sent five times, then nothing."""
    flight = Flight()
    flight.begin()
    tipped(flight, 2)
    flight.filter.on_state(odometry(quat=lean(2.2)), flight.now_s + DT_S)
    outs = [flight.fly(flight.hover()) for _ in range(8)]
    assert [out is None for out in outs] == [False] * 5 + [True] * 3
    assert all((out == -1.0).all() for out in outs[:5])
    assert flight.filter.reason is Reason.UPSIDE_DOWN


def test_without_states_it_sinks_then_cuts_the_motors() -> None:
    """After 3 periods slightly less than hover thrust; a landing after 0.25 s, motors off 0.5 s later."""
    flight = Flight()
    flight.begin()
    flight.heard = False
    outs = [flight.fly(flight.hover()) for _ in range(100)]
    assert np.array_equal(outs[2], flight.hover())
    assert (outs[4] < flight.hover()).all()
    assert (outs[4] > -0.9).all()
    assert flight.filter.reason is Reason.BLIND
    assert outs[-1] is None


@pytest.mark.filterwarnings("ignore:overflow")
@pytest.mark.parametrize(
    "lander", [MotorsLander(CRAFT, DT_S), MotorsLander(model(load_craft("x500")), DT_S), RatesLander(0.5)]
)
@pytest.mark.parametrize("part", ["velocity", "rates"])
@pytest.mark.parametrize("huge", [1e155, 1e308, -1.7e308])
def test_huge_finite_state_lands_with_finite_commands(lander: Lander, part: str, huge: float) -> None:
    """It is valid but outside the envelope; the commands of the landing are finite."""
    filter_ = FlightFilter(ENVELOPE, lander, 1 / DT_S, 1 / DT_S)
    filter_.on_state(odometry(), 0.0)
    assert filter_.arm(0.0)[0]
    assert filter_.on_command(FlightCommand(0.0, np.zeros(4)), 0.0)
    filter_.on_state(odometry(**{part: [huge] * 3}), 0.0)
    out = filter_.tick(0.0)
    assert filter_.phase is FlightPhase.LANDING
    assert out is not None
    assert np.isfinite(out).all()


def test_blind_time_restarts_with_each_flight() -> None:
    """After a blind landing, the motors of the next one run for as long before they are cut."""
    flight, ticks = Flight(), []
    for _ in range(2):
        flight.heard = True
        flight.begin()
        flight.heard = False
        flying = 0
        while flight.fly(flight.hover()) is not None:
            flying += flight.filter.phase is not FlightPhase.CUTTING
        assert flight.filter.reason is Reason.BLIND
        ticks.append(flying)
        flight.state[POS], flight.state[VEL] = 0.0, 0.0
    assert ticks[0] == ticks[1]


def test_short_silence_is_a_hold() -> None:
    """Level and still without commands; when they return in time, the policy flies on."""
    flight = Flight(velocity=[0.3, 0.0, 0.0])
    flight.begin()
    for _ in range(20):
        flight.fly()
    assert flight.filter.reason is Reason.LATE_COMMAND
    flight.fly(flight.hover())
    assert flight.filter.reason is None
    assert flight.filter.counts == {Reason.LATE_COMMAND: 1}
    for _ in range(40):
        flight.fly()
    assert flight.filter.reason is Reason.NO_COMMAND


def test_one_command_that_is_left_out_is_no_silence() -> None:
    """Two periods of 10 ms, with jitter."""
    flight = Flight()
    flight.begin()
    sent_s = flight.now_s
    for late_s, reason in ((0.0201, None), (0.0249, None), (0.0251, Reason.LATE_COMMAND)):
        flight.now_s = sent_s + late_s
        flight.hear()
        flight.filter.tick(flight.now_s)
        assert flight.filter.reason is reason


def test_emergency_stop_cuts_the_motors_and_is_latched() -> None:
    flight = Flight()
    flight.begin()
    flight.filter.on_emergency(True)
    assert (flight.fly(flight.hover()) == -1.0).all()
    for _ in range(10):
        flight.fly(flight.hover())
    assert flight.filter.arm(flight.now_s)[1].startswith("not armed: the emergency stop is still pressed")
    flight.filter.on_emergency(False)
    assert flight.fly(flight.hover()) is None


@pytest.mark.parametrize("now_s", [-5.0, math.nan, math.inf])
def test_clock_jump_lands_the_craft(now_s: float) -> None:
    flight = Flight()
    flight.begin()
    assert (flight.filter.tick(now_s) > -1.0).any()
    assert (flight.filter.phase, flight.filter.reason) == (FlightPhase.LANDING, Reason.FLIGHT_CLOCK)


def test_silent_until_armed_and_commanded() -> None:
    """Arming alone starts no motor, nor does a stop before the first command."""
    flight = Flight()
    assert flight.fly(flight.hover()) is None
    assert flight.filter.arm(flight.now_s)[0]
    assert flight.fly() is None
    flight.filter.stop()
    assert flight.fly() is None
    assert flight.filter.phase is FlightPhase.DISARMED


def test_frames_of_an_invalid_state_are_not_kept() -> None:
    """A state without a position names another frame before arming: the flight uses the right frame."""
    flight = Flight()
    flight.filter.on_state(replace(odometry(position=[math.nan, 0.0, 0.0]), frame="map"), flight.now_s)
    flight.hear()
    flight.filter.on_state(replace(odometry(position=[math.nan, 0.0, 0.0]), frame="map"), flight.now_s)
    assert flight.filter.arm(flight.now_s)[0]
    flight.hear()
    assert not flight.filter.fault


def test_arming_outside_the_envelope_is_refused() -> None:
    flight = Flight(position=[0.0, 0.0, 3.0])
    flight.hear()
    assert flight.filter.arm(0.0) == (False, "not armed: the craft left the geofence")
    assert Flight().filter.arm(0.0) == (False, "not armed: no fresh state of the robot has arrived")


def test_rates_and_thrust_are_clamped() -> None:
    """8 rad/s is the envelope's norm: (6, 8, 0) becomes (4.8, 6.4, 0), in the same direction."""
    filter_ = FlightFilter(ENVELOPE, RatesLander(0.5), 100.0, 100.0, level="rates")
    filter_.on_state(odometry(), 0.0)
    assert filter_.arm(0.0)[0]
    filter_.on_command(FlightCommand(0.0, np.array([1.5, 6.0, 8.0, 0.0])), 0.0)
    assert filter_.tick(0.0) == pytest.approx([1.0, 4.8, 6.4, 0.0])
    assert filter_.counts == {Reason.THRUST: 1, Reason.BODY_RATE: 1}
    assert RatesLander(0.5).descend(odometry(velocity=[0.0, 0.0, -0.3]), 0.3) == pytest.approx(
        [0.5, 0.0, 0.0, 0.0]
    )


def test_rotors_in_a_line_are_refused() -> None:
    craft = CraftModel(0.03, (1e-5,) * 3, ((0.1, 0.0),) * 4, (-1, 1, -1, 1), (0.0, 0.0, 0.2), 0.006, 0.1, 0.1)
    with pytest.raises(ConfigError, match="cannot give three torques"):
        MotorsLander(craft, DT_S)
