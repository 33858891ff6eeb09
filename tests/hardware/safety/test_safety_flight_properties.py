"""The quadcopter's filter keeps its promises for random commands, states and clocks."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import Phase as Phase_
from hypothesis import strategies as st

from hardware.messages import FlightCommand
from hardware.safety.flight import FlightFilter
from hardware.safety.landing import Lander, MotorsLander, RatesLander
from robo_rl.core.flight.frames import rotation_of
from tests.hardware.safety.flight_bench import CRAFT, DT_S, ENVELOPE, LEVEL, odometry


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
