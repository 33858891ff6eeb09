"""Attack of the flight filter: random worlds of a craft, a policy and a bundle, judged by `flight_oracle`."""

from __future__ import annotations

import math
import random
from collections import Counter
from typing import Any

import numpy as np

from attacks.flight_oracle import Bounds, FlightOracle, seen
from attacks.hostile_envelopes import hostile_envelope
from hardware.messages import MOTORS, RATES, FlightCommand, Odometry
from hardware.safety.flight import FlightFilter
from hardware.safety.landing import CraftModel, MotorsLander, RatesLander
from robo_rl.core.flight.envelope import FlightEnvelope

PERIOD_S, HOVER = 0.01, 0.5
NASTY = (math.nan, math.inf, -math.inf, 1e308, -1e308, 1e155, 5e-324, -0.0, 50.0, -9.99)
FRAMES = ("world", "odom", "map", "odom_ned", "base_link", "base_link_frd", "", "NED")
ARM_M = 0.05
_SQUARE = ((ARM_M, -ARM_M), (-ARM_M, -ARM_M), (-ARM_M, ARM_M), (ARM_M, ARM_M))
MODEL = CraftModel(0.03, (2e-5, 2e-5, 3e-5), _SQUARE, (-1, 1, -1, 1), (0.0, 0.01, 0.14), 0.006, 0.05, 0.08)


class World:
    """One sequence. Each of its disturbances has a chance per period, drawn once."""

    def __init__(self, rng: random.Random) -> None:
        self.rng, self.now = rng, rng.choice((0.0, 5.0, 1e6))
        self.is_rates = rng.random() < 0.7
        self.lost, self.wild, self.nasty = (
            rng.choice((0.0, 0.1, 0.6)),
            rng.choice((0.0, 0.1, 1.0)),
            rng.random() < 0.3,
        )
        self.disorder, self.event = rng.choice((0.0, 0.2)), rng.choice((0.0, 0.02, 0.15))
        self.jitter, self.clock = rng.choice((0.0, 0.3, 4.0)), rng.choice((0.0, 0.0, 0.03))
        self.silent_policy, self.silent_robot = rng.choice((0.0, 0.05)), rng.choice((0.0, 0.05))
        envelope = hostile_envelope(rng)
        ground = rng.choice((None, envelope.fence_low_m[2] - 1.0))
        lander = RatesLander(HOVER) if self.is_rates else MotorsLander(MODEL, PERIOD_S)
        self.filter = FlightFilter(
            envelope, lander, 1 / PERIOD_S, 1 / PERIOD_S, "rates" if self.is_rates else "motors", ground
        )
        self.oracle = FlightOracle(self._bounds(envelope, ground))
        low, high = envelope.fence_low_m, envelope.fence_high_m
        self.middle = [0.5 * (a + b) for a, b in zip(low, high, strict=True)]
        self.room = [0.5 * (b - a) for a, b in zip(low, high, strict=True)]
        self.envelope, self.lean, self.stamp = envelope, 0.0, rng.choice((0.0, 5.0, 1.79e9))
        self.frames = ("world", "base_link")
        self.mute_policy = self.mute_robot = self.grounded = 0

    def _bounds(self, envelope: FlightEnvelope, ground: float | None) -> Bounds:
        e = envelope
        return Bounds(
            e.tilt_rad, e.rate_rad_s, e.speed_m_s, e.fence_low_m, e.fence_high_m, e.cut_height_m,
            e.cut_tilt_rad,
            e.fence_low_m[2] if ground is None else ground, self.is_rates, PERIOD_S, PERIOD_S, HOVER,
        )  # fmt: skip

    def run(self, periods: int) -> None:
        """Play the sequence; AssertionError at a broken promise."""
        self.hear()
        self.arm()
        for _ in range(periods):
            self.pass_time()
            self.silences()
            if self.rng.random() >= self.lost and not self.mute_robot:
                self.hear()
            if self.rng.random() >= self.lost and not self.mute_policy:
                self.tell()
            if self.rng.random() < self.event:
                self.happen()
            self.tick()
        was_silent, last = self.oracle.silent, self.filter.finish()
        assert (last is None) == was_silent, "the last word is wrong"
        assert last is None or tuple(map(float, last)) == self.oracle.off, (
            "the last word does not stop the motors"
        )

    def silences(self) -> None:
        """Long pauses of the policy or of the estimator."""
        rng = self.rng
        self.mute_policy, self.mute_robot = max(0, self.mute_policy - 1), max(0, self.mute_robot - 1)
        if rng.random() < self.silent_policy:
            self.mute_policy = rng.choice((2, 4, 20, 40))
        if rng.random() < self.silent_robot:
            self.mute_robot = rng.choice((3, 5, 30, 110))

    def pass_time(self) -> None:
        rng = self.rng
        self.now += PERIOD_S * rng.uniform(0.999, 1.0)  # no age is exactly at its limit
        self.now += PERIOD_S * (self.jitter * rng.random() * (rng.random() < 0.3))
        if rng.random() < self.clock:
            self.now += rng.choice((-5.0, -1e-3, -1e6, 0.2, 30.0))

    def hear(self) -> None:
        """A state of the estimator: inside, wandering, or absurd."""
        rng, wild = self.rng, self.wild
        reach = rng.choice((0.3, 0.3, 0.3, 1.01, 1.5)) if rng.random() < wild else 0.3
        position = [m + reach * r * rng.uniform(-1, 1) for m, r in zip(self.middle, self.room, strict=True)]
        if rng.random() < 0.1 * wild:
            self.grounded = rng.choice((1, 2, 2, 3, 6))
        if self.grounded:  # wrongly, or because it is down
            self.grounded -= 1
            position[2] = self.oracle.b.ground + rng.choice((0.0, 0.02, 0.02, 0.02, 0.09, 0.4))
        self.lean = (
            rng.choice((0.0, 0.3, 0.9, 1.05, 2.0, 3.1)) if rng.random() < 0.3 * wild else 0.5 * self.lean
        )
        angle, way = self.lean * min(1.0, self.envelope.tilt_rad), rng.uniform(-math.pi, math.pi)
        angle = self.lean if rng.random() < 0.2 * wild else angle
        half, yaw = 0.5 * angle, 0.5 * rng.uniform(-math.pi, math.pi)
        quat = _product(
            (math.cos(yaw), 0.0, 0.0, math.sin(yaw)),
            (math.cos(half), math.sin(half) * math.cos(way), math.sin(half) * math.sin(way), 0.0),
        )
        fast = rng.choice((0.0, 0.02, 0.5, 1.02, 3.0)) if rng.random() < wild else 0.02
        velocity = [fast * self.envelope.speed_m_s * rng.uniform(-1, 1) for _ in range(3)]
        turn = rng.choice((0.3, 1.02, 3.0)) if rng.random() < 0.3 * wild else 0.3
        rates = [turn * self.envelope.rate_rad_s * rng.uniform(-0.57, 0.57) for _ in range(3)]
        length = rng.choice((1.0, 0.97, 1.03)) if rng.random() < wild else 1.0
        parts = [position, [length * part for part in quat], velocity, rates]
        if self.nasty and rng.random() < 0.1:
            part = rng.choice(parts)
            part[rng.randrange(len(part))] = rng.choice(NASTY)
        frames = self.frames
        if self.nasty and rng.random() < 0.03:
            frames = (rng.choice(FRAMES), rng.choice(FRAMES))
        with np.errstate(all="ignore"):
            message = Odometry(rng.choice((0.0, 1e9, -5.0)), *map(np.array, parts), *frames)  # type: ignore[arg-type]
            self.filter.on_state(message, self.now)
        self.oracle.hear(seen(*parts, self.now), frames)

    def tell(self) -> None:
        """A command of the policy: in order or not, of any size, sometimes with absurd numbers."""
        rng = self.rng
        self.stamp += 0.01
        stamp = self.stamp
        if rng.random() < self.disorder:
            stamp = rng.choice([stamp - 0.01 * rng.randrange(1, 4), -stamp, 0.0, 2.1e9, math.nan, math.inf])
        ours, others = (RATES, MOTORS) if self.is_rates else (MOTORS, RATES)
        names = rng.choice((ours, ours, ours, (), others)) if self.nasty else ours
        size = rng.choice((1.0, 1.0, 1.0, 10.0, 1e3))
        values = [
            rng.uniform(-1, 1) * size * (self.envelope.rate_rad_s if self.is_rates and i else 1.0)
            for i in range(4)
        ]
        if self.nasty and rng.random() < 0.2:
            values[rng.randrange(4)] = rng.choice(NASTY)
        if self.nasty and rng.random() < 0.05:
            values = values[: rng.randrange(4)] if rng.random() < 0.5 else values * 2
        with np.errstate(all="ignore"):
            taken = self.filter.on_command(FlightCommand(stamp, np.array(values), names), self.now)
        self.oracle.told(tuple(values), stamp, names in ((), ours), self.now, taken)

    def happen(self) -> None:
        """The operator does something."""
        what = self.rng.choice(("arm", "arm", "stop", "press", "release", "release"))
        if what == "arm":
            self.arm()
        elif what == "stop":
            self.filter.stop()
            self.oracle.stopped()
        else:
            self.filter.on_emergency(what == "press")
            self.oracle.emergency(what == "press")

    def arm(self) -> None:
        self.oracle.asked_to_arm(self.now, self.filter.arm(self.now)[0])

    def tick(self) -> None:
        now = self.now
        if self.rng.random() < 0.1 * self.clock:
            now = self.rng.choice((math.nan, math.inf, -math.inf))
        with np.errstate(all="ignore"):
            out = self.filter.tick(now)
        self.oracle.ticked(now, out)


def _product(p: Any, q: Any) -> tuple[float, ...]:
    """Product of two quaternions [w, x, y, z]."""
    a, b, c, d = p
    w, x, y, z = q
    return (
        a * w - b * x - c * y - d * z, a * x + b * w + c * z - d * y,
        a * y - b * z + c * w + d * x, a * z + b * y - c * x + d * w,
    )  # fmt: skip


def attack(sequences: int, seed: int) -> tuple[int, Counter[str], str]:
    """(sequences tried, violations by promise, one example)."""
    counts, example = Counter[str](), ""
    for i in range(sequences):
        rng = random.Random(seed * 1_000_003 + i)
        try:
            World(rng).run(rng.choice((15, 40, 90)))
        except AssertionError as broken:
            counts[str(broken)] += 1
            example = example or f"sequence {i}: {broken}"
        except Exception as error:  # a filter that raises ends its node in the air
            counts[f"raises {type(error).__name__}"] += 1
            example = example or f"sequence {i}: {type(error).__name__}: {error}"
    return sequences, counts, example
