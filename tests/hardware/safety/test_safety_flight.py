"""The quadcopter's filter: limits, the envelope, landing and motor cut, in the project's own flight
dynamics.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import Phase as Phase_
from hypothesis import strategies as st

from hardware.messages import FlightCommand, Odometry
from hardware.safety.flight import FlightFilter, FlightPhase
from hardware.safety.landing import CraftModel, Lander, MotorsLander, RatesLander
from hardware.safety.reasons import Reason
from robo_rl.core.errors import ConfigError
from robo_rl.core.flight.envelope import FlightEnvelope
from robo_rl.core.flight.frames import rotation_of
from sim.engines.quad.craft import Craft, load_craft
from sim.engines.quad.dynamics import QuadPhysics, make_step
from sim.engines.quad.layout import POS, QUAT, RATE, ROTOR, VEL, parameters

DT_S = 0.01
ENVELOPE = FlightEnvelope(0.6, 8.0, 2.0, (-1.0, -1.0, -1.0), (1.0, 1.0, 1.0))
LEVEL, STILL = np.array([1.0, 0.0, 0.0, 0.0]), np.zeros(3)


def model(craft: Craft) -> CraftModel:
    return CraftModel(
        craft.mass_kg,
        craft.inertia_kg_m2,
        craft.rotors_m,
        craft.yaw_sign,
        craft.thrust_n,
        craft.torque_per_thrust_m,
        craft.rise_s,
        craft.fall_s,
    )


def odometry(
    position: Any = (0.0, 0.0, 0.0), quat: Any = LEVEL, velocity: Any = STILL, rates: Any = STILL
) -> Odometry:
    arrays = (np.asarray(part, dtype=np.float64) for part in (position, quat, velocity, rates))
    return Odometry(0.0, *arrays)


def lean(angle: float) -> Any:
    return np.array([math.cos(angle / 2), math.sin(angle / 2), 0.0, 0.0])


CRAFT = model(load_craft("cf2x_l2f"))


class Flight:
    """A craft in the air, with the filter between it and a sender of commands."""

    def __init__(self, craft: str = "cf2x_l2f", **start: Any) -> None:
        self.craft = load_craft(craft)
        self.lander = MotorsLander(model(self.craft), DT_S)
        self.filter = FlightFilter(ENVELOPE, self.lander, 1 / DT_S, 1 / DT_S)
        self.step, self.params = make_step(self.craft, QuadPhysics(dt_s=DT_S)), parameters(self.craft, DT_S)
        self.state = torch.zeros(17, 1)
        self.state[3] = 1.0
        self.state[ROTOR] = torch.tensor(self.lander.hover, dtype=torch.float32)[:, None]
        for part, value in start.items():
            rows = {"position": POS, "quat": QUAT, "velocity": VEL, "rates": RATE}[part]
            self.state[rows] = torch.tensor(np.asarray(value), dtype=torch.float32)[:, None]
        self.now_s, self.heard, self.sequence = 0.0, True, 0
        self.lowest_speed_m_s, self.widest_tilt_rad = 0.0, 0.0

    def odometry(self) -> Odometry:
        rows = self.state[:, 0].double().numpy()
        quat = rows[QUAT] / np.linalg.norm(rows[QUAT])
        return odometry(rows[POS], quat, rotation_of(quat).T @ rows[VEL], rows[RATE])

    def hear(self) -> None:
        if self.heard:
            self.filter.on_state(self.odometry(), self.now_s)

    def fly(self, command: Any = None) -> Any:
        """One period; without a new command the craft keeps its last one."""
        self.now_s += DT_S
        self.hear()
        if command is not None:
            self.tell(command)
        out = self.filter.tick(self.now_s)
        if out is not None:
            speeds = torch.tensor(0.5 * out + 0.5, dtype=torch.float32)[:, None]
            self.state = self.step(self.state, speeds, self.params, torch.zeros(9, 1))
        return out

    def tell(self, command: Any) -> bool:
        """Send the next command of a sender."""
        self.sequence += 1
        return self.filter.on_command(FlightCommand(float(self.sequence), np.asarray(command)), self.now_s)

    def hover(self) -> Any:
        return 2.0 * self.lander.hover - 1.0

    def begin(self) -> None:
        self.hear()
        assert self.filter.arm(self.now_s)[0]
        self.fly(self.hover())


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


def test_random_flights_keep_the_promises() -> None:
    """2,000 sequences of all kinds of commands and states: outputs are finite, within the limits, and
    never from the policy once the envelope was left, the emergency stop pressed, or messages stopped.
    """
    count = [0, 0]

    @settings(
        max_examples=80, deadline=None, derandomize=True, database=None, phases=[Phase_.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(
        seed=st.integers(0, 2**32 - 1), nasty=st.floats(allow_nan=True, allow_infinity=True),
        wild=st.sampled_from([0.02, 0.3, 1.0]), level=st.sampled_from(["motors", "rates"]),
    )  # fmt: skip
    def prove(seed: int, nasty: float, wild: float, level: Any) -> None:
        lander = RatesLander(0.5) if level == "rates" else MotorsLander(CRAFT, DT_S)
        for i in range(25):
            with np.errstate(all="ignore"):
                count[1] += random_flight(np.random.default_rng([seed, i]), nasty, wild, level, lander)
            count[0] += 1

    prove()
    assert count[0] >= 2_000
    assert count[1] >= 8_000


@dataclass
class Known:
    """What the filter knows of the craft, by its promises."""

    state_s: float = -1.0  # receipt of the newest state that counts
    is_inside: bool = False  # the envelope, at that state
    tilted_s: list[float] = field(default_factory=list)  # receipts of states in a row tilted beyond recovery

    def see(self, parts: list[Any], now_s: float, flies: bool) -> None:
        """Take a state. In flight, three such states in a row are believed, or two over 50 ms."""
        if not all(np.isfinite(part).all() for part in parts) or abs(np.linalg.norm(parts[1]) - 1.0) > 0.05:
            return
        self.tilted_s = [*self.tilted_s, now_s] if tilt_rad(parts) > ENVELOPE.cut_tilt_rad else []
        doubtful = len(self.tilted_s) in (1, 2) and self.tilted_s[-1] - self.tilted_s[0] < 0.05
        if not (flies and doubtful):
            self.state_s, self.is_inside = now_s, inside(parts)


def random_flight(rng: np.random.Generator, nasty: float, wild: float, level: Any, lander: Lander) -> int:
    """One sequence; returns how many commands came out."""
    filter_ = FlightFilter(ENVELOPE, lander, 100.0, 100.0, level=level)
    now_s, policy_ok, sent, known = 0.0, False, 0, Known()
    newest: float | None = None
    for step in range(12):
        now_s += DT_S * float(rng.choice([1.0, 1.0, 1.0, 1.0 + wild, 1.0 + 4.0 * wild]))
        spin = rng.standard_normal(4) * [0.0, wild, wild, wild] + LEVEL
        parts = [
            wild * rng.standard_normal(3),
            spin / np.linalg.norm(spin),
            wild * rng.standard_normal(3),
            wild * rng.standard_normal(3),
        ]
        if rng.random() < 0.05 * wild:
            parts[int(rng.integers(4))][0] = nasty
        if rng.random() > 0.1 * wild:
            filter_.on_state(odometry(*parts), now_s)
            known.see(parts, now_s, policy_ok)
        if step == 0:
            policy_ok = filter_.arm(now_s)[0]
        if rng.random() < 0.02:
            filter_.on_emergency(True)
            policy_ok = False
        values = rng.uniform(-0.9, 0.9, 4) * rng.choice([1.0, 10.0], p=[0.8, 0.2])
        if rng.random() < 0.1 * wild:
            values[int(rng.integers(4))] = nasty
        stamp_s = 10.0 * int(rng.random() < 0.1) + step - int(rng.integers(3)) * int(rng.random() < 0.2)
        taken = filter_.on_command(FlightCommand(stamp_s, values), now_s)
        assert not taken or (
            np.isfinite(values).all() and (newest is None or stamp_s > newest or stamp_s == newest == 0.0)
        )
        newest = stamp_s if taken else newest
        if newest is not None:  # before the first command the craft may be carried about
            policy_ok = policy_ok and known.is_inside
        out = filter_.tick(now_s)
        may_pass = policy_ok and now_s - known.state_s <= 0.03 + 1e-6
        if out is None:
            continue
        sent += 1
        assert out.shape == (4,)
        assert np.isfinite(out).all()
        if level == "motors":
            assert (np.abs(out) <= 1.0).all()
            assert may_pass or not np.array_equal(out, values)
        else:
            assert 0.0 <= out[0] <= 1.0
            assert np.linalg.norm(out[1:]) <= ENVELOPE.rate_rad_s + 1e-9
    return sent


def inside(parts: list[Any]) -> bool:
    """True inside the envelope, by the oracle's own arithmetic."""
    calm = np.linalg.norm(parts[2]) <= ENVELOPE.speed_m_s and np.linalg.norm(parts[3]) <= ENVELOPE.rate_rad_s
    return bool(calm and (np.abs(parts[0]) <= 1.0).all() and tilt_rad(parts) <= ENVELOPE.tilt_rad + 1e-6)


def tilt_rad(parts: list[Any]) -> float:
    """Angle between the craft's up axis and the world's."""
    up = rotation_of(parts[1])[2, 2] / np.linalg.norm(parts[1]) ** 2
    return math.acos(max(-1.0, min(1.0, up)))
