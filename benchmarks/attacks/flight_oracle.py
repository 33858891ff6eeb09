"""Oracle of the flight filter: it knows the promises of docs/safety.md and shares no code with the filter.

It hears what the filter is told and what comes out, keeps its own account of arming, order, ages and
envelope, and raises AssertionError at the first broken promise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

Numbers = tuple[float, ...]
HOLD_S, BLIND_S, OFFS = (
    0.25,
    0.5,
    5,
)  # docs/safety.md: held, then landed; motors off without a state; times sent


@dataclass(frozen=True, slots=True)
class Bounds:
    """What the owner of the craft and the bundle agreed on. Lengths in m, angles in rad, times in s."""

    tilt: float
    rate: float
    speed: float
    low: Numbers
    high: Numbers
    cut_height: float
    cut_tilt: float
    ground: float
    is_rates: bool
    period: float
    state_period: float
    hover: float  # thrust, level rates


@dataclass(frozen=True, slots=True)
class Seen:
    """A state that the filter has to take. up: the world's up in the body frame."""

    position: Numbers
    up: Numbers
    speed: float
    rate: float
    received: float


def seen(position: Any, quat: Any, velocity: Any, rates: Any, received: float) -> Seen | None:
    """The state of these numbers; None where one is not finite, or one is missing."""
    parts = [[float(x) for x in part] for part in (position, quat, velocity, rates)]
    whole = [len(part) for part in parts] == [3, 4, 3, 3]
    if not whole or not all(math.isfinite(x) for part in parts for x in part) or not math.isfinite(received):
        return None
    w, x, y, z = parts[1]
    if abs(math.hypot(w, x, y, z) - 1.0) > 0.05:
        return None
    up = (2.0 * (x * z - w * y), 2.0 * (y * z + w * x), 1.0 - 2.0 * (x * x + y * y))
    return Seen(tuple(parts[0]), up, math.hypot(*parts[2]), math.hypot(*parts[3]), received)


class FlightOracle:
    """Account of one filter."""

    def __init__(self, bounds: Bounds) -> None:
        self.b, self.off = bounds, (0.0,) * 4 if bounds.is_rates else (-1.0,) * 4
        self.armed = self.landing = self.killed = False  # landing: latched
        self.offs = 0  # times that "motors off" was sent, while it is sent; 0 otherwise
        self.state: Seen | None = None
        self.frames: tuple[str, str] | None = None
        self.command: Numbers | None = None
        self.command_s = self.now = -math.inf
        self.newest: float | None = None  # stamp
        self.late_from: float | None = None
        self.blind_from, self.cause, self.passed = math.nan, "", 0
        self.tipped: list[float] = []  # receipts of states in a row that would cut the motors
        self.low: list[float] = []  # receipts of states in a row on the ground

    @property
    def silent(self) -> bool:
        return not (self.armed or self.landing or self.cause)

    def hear(self, state: Seen | None, frames: tuple[str, str]) -> None:
        """A state arrives: taken unless it is broken, or in a frame that cannot be."""
        axes = "".join(frames).lower()
        if "ned" in axes or "frd" in axes or (not self.silent and self.frames not in (None, frames)):
            return
        if state is None:
            return
        if (self.armed or self.landing) and _angle(state.up) > self.b.cut_tilt:
            self.tipped.append(state.received)
            if _is_doubtful(self.tipped):
                return  # one wrong state of the estimator
        else:
            self.tipped.clear()
        is_low = state.position[2] - self.b.ground <= self.b.cut_height
        self.low = [*self.low, state.received] if is_low else []
        self.state, self.frames = state, frames

    def told(self, values: Numbers, stamp: float, ours: bool, received: float, taken: bool) -> None:
        """A command arrives; `taken` is the filter's answer. ours: of this craft's level."""
        whole = ours and len(values) == 4 and all(math.isfinite(v) for v in (*values, stamp))
        repeats = self.newest is not None and (stamp < self.newest or (stamp == self.newest and stamp != 0.0))
        must = self.armed and whole and not repeats
        assert must or not taken, "a command was taken that must be dropped"
        assert taken or not must, "a command in order was dropped"
        if taken:
            self.command, self.command_s, self.newest = self._clamp(values), received, stamp

    def asked_to_arm(self, now: float, answer: bool) -> None:
        """~/arm was called."""
        self.time(now)
        if self.armed:
            assert answer, "an armed filter refuses to be armed"
            self.newest = None  # arming forgets the last stamp
            return
        may = self.silent and not self.killed and self._fresh(now) and not self._outside()
        assert may or not answer, "armed without the right to fly"
        assert answer or not may, "arming was refused inside the envelope"
        if answer:
            self.armed, self.command, self.newest, self.late_from = True, None, None, None
            self.blind_from = math.nan

    def emergency(self, pressed: bool) -> None:
        """The emergency stop was pressed or released."""
        self.killed = pressed
        if pressed and (self.armed or self.landing):
            self._end("killed")

    def stopped(self) -> None:
        """A landing was asked for."""
        if self.armed:
            self.armed, self.landing = False, self.command is not None

    def time(self, now: float) -> None:
        """The clock as the filter is told it; one that runs backwards is a fault that lands the craft."""
        if not math.isfinite(now) or now < self.now - 1e-9:
            self.stopped()
            self.state = None if self.state is None else _aged(self.state)
            self.blind_from, self.now = math.nan, -math.inf
        if math.isfinite(now):
            self.now = now

    def ticked(self, now: float, out: Any) -> None:
        """What the filter sends now."""
        self.time(now)
        sent = None if out is None else tuple(float(v) for v in out)
        if self.silent or (self.armed and self.command is None):
            assert sent is None, "sent before it was armed and commanded"
            return
        if sent is not None:
            self._in_range(sent)
        if not self.cause:
            self._judge(now)
        if self.cause:
            return self._cut(sent)
        assert sent is not None, "silent in the air"
        if self.landing or self.late_from is not None:
            self._led(now, sent)
        else:
            assert self._same(sent, self.command), "a command inside the envelope does not pass"
            self.passed += 1

    def _judge(self, now: float) -> None:
        """Latch a landing, or the end of the motors, as docs/safety.md lists them."""
        fresh, state = self._fresh(now), self.state
        if state is not None and _angle(state.up) > self.b.cut_tilt:
            return self._end("upside down")
        if self.armed:
            self._still_flies(now, fresh)
        if not self.landing:
            return
        if fresh and state is not None:
            self.blind_from = math.nan
            if self.low and not _is_doubtful(self.low):
                self._end("on the ground")
        elif math.isnan(self.blind_from):
            self.blind_from = now if math.isfinite(now) else math.nan
        elif now - self.blind_from > BLIND_S:
            self._end("blind")

    def _still_flies(self, now: float, fresh: bool) -> None:
        silent = not -1e-9 <= now - self.command_s <= 2.5 * self.b.period + 1e-9
        if fresh and self._outside():
            self.stopped()
        elif fresh and not silent:
            self.late_from = None
        elif self.late_from is None:
            self.late_from = now
        elif now - self.late_from > HOLD_S:
            self.stopped()

    def _cut(self, sent: Numbers | None) -> None:
        if self.offs == OFFS:
            assert sent is None, "more than five times off"
            self.cause, self.offs, self.command = "", 0, None
            return
        assert sent == self.off, f"motors run on: {self.cause}"
        self.offs += 1

    def _led(self, now: float, sent: Numbers) -> None:
        """The filter flies by itself: what it sends is no command of the policy, and levels the craft."""
        if self.command is not None and max(map(abs, self.command)) > 0.0:
            distinct = _could_not_be_led(self.command, self.b)
            assert not (distinct and self._same(sent, self.command)), "the policy flies on"
        state = self.state
        if not self.b.is_rates or state is None or not self._fresh(now) or state.speed > 0.05:
            if self.b.is_rates and not self._fresh(now):
                assert 0.5 * self.b.hover < sent[0] < self.b.hover, "blind, it does not sink slowly"
                assert math.hypot(*sent[1:]) == 0.0, "blind, it turns"
            return
        x, y, z = state.up
        if 0.1 < _angle(state.up) < 1.5:
            assert -(sent[1] * y - sent[2] * x) > 0.0, "landing, it tilts further"
        elif z > 0.9999 and self.landing:
            assert sent[0] < self.b.hover, "landing, it climbs"

    def _in_range(self, sent: Numbers) -> None:
        assert len(sent) == 4, "not four numbers"
        assert all(math.isfinite(v) for v in sent), "not finite"
        if self.b.is_rates:
            assert 0.0 <= sent[0] <= 1.0, "thrust out of range"
            assert math.hypot(*sent[1:]) <= self.b.rate * (1.0 + 1e-9), "body rates beyond the envelope"
        else:
            assert all(-1.0 <= v <= 1.0 for v in sent), "motor command out of range"

    def _clamp(self, values: Numbers) -> Numbers:
        if not self.b.is_rates:
            return tuple(min(1.0, max(-1.0, v)) for v in values)
        turning = math.hypot(*values[1:])
        share = min(1.0, self.b.rate / turning) if turning > 0.0 else 1.0
        return (min(1.0, max(0.0, values[0])), *(v * share for v in values[1:]))

    def _same(self, sent: Numbers, command: Numbers | None) -> bool:
        return command is not None and all(abs(a - b) <= 1e-6 for a, b in zip(sent, command, strict=True))

    def _fresh(self, now: float) -> bool:
        return (
            self.state is not None and -1e-9 <= now - self.state.received <= 3.0 * self.b.state_period + 1e-9
        )

    def _outside(self) -> bool:
        s, b = self.state, self.b
        assert s is not None
        inside = all(low <= x <= high for low, x, high in zip(b.low, s.position, b.high, strict=True))
        return not (inside and _angle(s.up) <= b.tilt and s.rate <= b.rate and s.speed <= b.speed)

    def _end(self, cause: str) -> None:
        self.armed = self.landing = False
        self.cause, self.offs = cause, 0


def _angle(up: Numbers) -> float:
    return math.acos(min(1.0, max(-1.0, up[2])))


def _is_doubtful(received: list[float]) -> bool:
    """True for one state, or two within 50 ms: an estimator may be wrong for so long."""
    return len(received) < 2 or (len(received) == 2 and received[1] - received[0] < 0.05)


def _aged(state: Seen) -> Seen:
    return Seen(state.position, state.up, state.speed, state.rate, -math.inf)


def _could_not_be_led(command: Numbers, bounds: Bounds) -> bool:
    """True for a command that a landing does not send: it turns, or not all motors are at their ends."""
    return math.hypot(*command[1:]) > 0.0 if bounds.is_rates else any(abs(v) < 0.999 for v in command)
