"""The safety filter of a quadcopter: the last stop before the motors or the autopilot.

Inside the envelope of the bundle (`FlightEnvelope`) the policy's commands pass, clamped. When the policy or
the estimator falls silent, the filter holds the craft level for a moment, then lands it. Outside the envelope
it lands at once. On the ground, upside down, or without a state for too long, it switches the motors off; one
wrong state does not make it do so. A landing is latched until the next arming. Time is an argument.
"""

from __future__ import annotations

import math
from collections import Counter
from enum import Enum

import numpy as np

from hardware.bus.protocol import Answer
from hardware.messages import MOTORS, RATES, FlightCommand, Odometry
from hardware.safety.confirmation import Confirmation
from hardware.safety.flight_limits import Four, Level, clamped, exceeded, is_state, tilt
from hardware.safety.frames import Frames
from hardware.safety.landing import Lander
from hardware.safety.message_parsing import StampOrder
from hardware.safety.reasons import Effect, Reason
from hardware.safety.timing import SILENT_FLIGHT_PERIODS, SLACK_S, STALE_STATE_PERIODS, is_stale
from robo_rl.core.errors import ConfigError
from robo_rl.core.flight.envelope import FlightEnvelope

HOLD_S = 0.25  # longest hold without a command or state before a landing
_BLIND_S = 0.5  # longest flight without a state
_OFFS = 5  # times that "motors off" is sent before silence


class FlightPhase(Enum):
    """Phase of a quadcopter's filter."""

    DISARMED = "disarmed"  # silent
    FLYING = "flying"  # passing the policy's commands, once there is one
    LANDING = "landing"  # descending by itself
    CUTTING = "cutting"  # sending "motors off"


class FlightFilter:
    """Output of a quadcopter's filter: the policy's command, a descent, or motors off.

    Checks and limits are pure functions in `hardware.safety.flight_limits`; this class holds phase,
    order and age. ground_m: height of the ground in the envelope's frame; by default the floor of its
    fence. Raises ConfigError for one that is not finite.
    """

    def __init__(
        self, envelope: FlightEnvelope, lander: Lander, command_hz: float, state_hz: float,
        level: Level = "motors", ground_m: float | None = None,
    ) -> None:  # fmt: skip
        self.envelope, self.lander, self.level = envelope, lander, level
        self.ground_m = envelope.fence_low_m[2] if ground_m is None else ground_m
        if not math.isfinite(self.ground_m):  # any height would count as the ground, or none
            raise ConfigError(f"ground_m={self.ground_m:g}: give the height of the ground, a finite number.")
        self.phase, self.counts = FlightPhase.DISARMED, Counter[Reason]()
        self.reason: Reason | None = Reason.NOT_ARMED  # why the policy does not fly; None while it does
        self._period_s, self._state_period_s = 1.0 / command_hz, 1.0 / state_hz
        self._order, self._frames = StampOrder(), Frames()
        self._tilted, self._low = Confirmation(), Confirmation()
        self._is_down = False  # the newest state is below cut_height_m, and others before it agree
        self.fault = ""  # fault of the frames of the newest state
        self._state: Odometry | None = None
        self._command: Four | None = None
        self._state_s = self._command_s = self._now_s = -math.inf
        self._landing_s = self._held_since_s = math.nan
        self._killed, self._offs = False, 0
        self.publisher_conflict = ""  # sentence while a topic that moves the craft has two publishers
        self.dropped: Reason | None = None  # why the newest command was dropped; None when it was accepted

    def on_state(self, message: Odometry, received_s: float) -> None:
        """Take a state of the estimator.

        It is dropped when it is invalid, in a wrong frame, or tilted beyond recovery and not confirmed yet.
        """
        self.fault = self._frames.fault(message, may_change=self.phase is FlightPhase.DISARMED)
        if self.fault or not is_state(message) or not math.isfinite(received_s):
            self._count(Reason.BAD_STATE)
            return
        if not self._is_plausible(message, received_s):
            self._count(Reason.TILT_UNCONFIRMED)
            return
        self._frames.take(message)
        self._state, self._state_s = message, received_s
        if message.position_m[2] - self.ground_m > self.envelope.cut_height_m:
            self._low.reset()
            self._is_down = False
        else:
            self._is_down = self._low.confirms(received_s)

    def on_command(self, message: FlightCommand, received_s: float) -> bool:
        """Take a command; False when it was dropped, for the reason `dropped`."""
        try:
            values = np.asarray(message.values, dtype=np.float64)
        except (TypeError, ValueError):
            values = np.zeros(0)
        self.dropped = refused = self._refuses(values, message.names) or self._order.check(message.stamp_s)
        if refused is not None:
            self._count(refused)
            return False
        self._order.take(message.stamp_s)
        self._command, self._command_s = values.copy(), received_s
        return True

    def on_emergency(self, pressed: bool) -> None:
        """Switch the motors off at once, wherever the craft is."""
        self._killed = pressed
        if pressed:
            self._cut(Reason.KILLED)

    def on_two_publishers(self, sentence: str) -> None:
        """Note that a topic that moves the craft has two publishers, which lands it; empty: one is left."""
        self.publisher_conflict = sentence
        if sentence:
            self.stop(Reason.FLIGHT_SECOND_PUBLISHER)

    def arm(self, now_s: float) -> Answer:
        """Let the policy fly, if the craft's state is known and inside the envelope."""
        self._advance(now_s)
        if self.phase is FlightPhase.FLYING:
            self._order.forget()
            return True, "armed already"
        why = self._why_not(now_s)
        if why is not None:
            self._count(why)
            details = {Reason.NO_STATE: self.fault, Reason.TWO_PUBLISHERS: self.publisher_conflict}
            return False, f"not armed: {details.get(why) or why.sentence}"
        self._order.forget()
        self.phase, self.reason, self._command = FlightPhase.FLYING, None, None
        self._landing_s = math.nan  # left from the last flight, which may have ended without a state
        return True, "armed: silent until the first command, then flying"

    def stop(self, reason: Reason = Reason.LAND_REQUESTED) -> Answer:
        """Land. Does nothing when the filter is silent; a craft that was never commanded is not started."""
        if self.phase is FlightPhase.FLYING:
            self._count(reason)
            self.reason = reason
            self.phase = FlightPhase.DISARMED if self._command is None else FlightPhase.LANDING
        return True, "silent already" if self.phase is FlightPhase.DISARMED else f"landing: {reason.sentence}"

    def tick(self, now_s: float) -> Four | None:
        """Command to send now (4,), or None. Call it once per command period."""
        self._advance(now_s)
        if self.phase in (FlightPhase.FLYING, FlightPhase.LANDING):
            self._update_phase(now_s)
        values = self._values(now_s)
        if values is not None:
            self.lander.sent(values)
        return values

    def finish(self) -> Four | None:
        """Motors off, when nothing can be sent afterwards. None when silent."""
        if self.phase is FlightPhase.DISARMED:
            return None
        self.phase = FlightPhase.DISARMED
        return self.lander.off()

    def _why_not(self, now_s: float) -> Reason | None:
        if self._killed:
            return Reason.EMERGENCY_LATCHED
        if self.publisher_conflict:
            return Reason.TWO_PUBLISHERS
        if self.phase is not FlightPhase.DISARMED:
            return Reason.STOPPING
        if self._state is None or self._state_is_stale(now_s):
            return Reason.NO_STATE
        return exceeded(self._state, self.envelope)

    def _refuses(self, values: Four, names: tuple[str, ...]) -> Reason | None:
        if self.phase is not FlightPhase.FLYING:
            return Reason.NOT_ARMED
        if values.shape != (4,):
            return Reason.WRONG_SHAPE
        if names and names != (MOTORS if self.level == "motors" else RATES):
            return Reason.WRONG_JOINTS
        return None if np.isfinite(values).all() else Reason.NOT_FINITE

    def _advance(self, now_s: float) -> None:
        if not math.isfinite(now_s) or now_s < self._now_s - SLACK_S:
            self.stop(Reason.FLIGHT_CLOCK)
            self._state_s, self._now_s, self._landing_s = -math.inf, -math.inf, math.nan
        if math.isfinite(now_s):
            self._now_s = now_s

    def _update_phase(self, now_s: float) -> None:
        """Set phase and reason: fly, land, or switch off."""
        state = self._state
        if self._command is None or state is None:
            return  # nothing was commanded yet: the filter does not control the craft
        if tilt(state) > self.envelope.cut_tilt_rad:
            return self._cut(Reason.UPSIDE_DOWN)
        blind = self._state_is_stale(now_s)
        if self.phase is FlightPhase.FLYING:
            self._fly_or_hold(now_s, state, blind)
        if self.phase is not FlightPhase.LANDING:
            return None
        if not blind:
            self._landing_s = math.nan
            if self._is_down:
                self._cut(Reason.LANDED)
        elif math.isnan(self._landing_s):
            self._landing_s = now_s if math.isfinite(now_s) else self._landing_s
        elif now_s - self._landing_s > _BLIND_S:
            self._cut(Reason.BLIND)
        return None

    def _fly_or_hold(self, now_s: float, state: Odometry, blind: bool) -> None:
        """Hold for a while when messages are late; land at once outside the envelope."""
        silent = is_stale(now_s, self._command_s, SILENT_FLIGHT_PERIODS * self._period_s)
        late = Reason.LATE_STATE if blind else Reason.LATE_COMMAND if silent else None
        outside = None if blind else exceeded(state, self.envelope)
        if outside is not None:
            self.stop(outside)
        elif late is None:
            self.reason = None
        elif self.reason is None:
            self.reason, self._held_since_s = late, now_s
            self._count(late)
        elif now_s - self._held_since_s > HOLD_S:
            self.stop(Reason.NO_FLIGHT_STATE if blind else Reason.NO_COMMAND)
        else:
            self.reason = late

    def _is_plausible(self, state: Odometry, received_s: float) -> bool:
        """False for a state that would cut the motors of a flying craft, unless others before it agree."""
        flies = self.phase in (FlightPhase.FLYING, FlightPhase.LANDING)
        if not flies or tilt(state) <= self.envelope.cut_tilt_rad:
            self._tilted.reset()
            return True
        return self._tilted.confirms(received_s)

    def _state_is_stale(self, now_s: float) -> bool:
        return is_stale(now_s, self._state_s, STALE_STATE_PERIODS * self._state_period_s)

    def _values(self, now_s: float) -> Four | None:
        if self.phase is FlightPhase.CUTTING:
            self._offs += 1
            if self._offs > _OFFS:
                self.phase = FlightPhase.DISARMED
                return None
            return self.lander.off()
        if self.phase is FlightPhase.LANDING:
            assert self._state is not None
            if self._state_is_stale(now_s):
                return self._clamped(self.lander.blind())
            return self._clamped(self.lander.descend(self._state, self.envelope.descend_m_s))
        if self.phase is FlightPhase.FLYING and self._command is not None and self._state is not None:
            if self.reason is Reason.LATE_STATE:
                return self._clamped(self.lander.blind())
            late = self.reason is Reason.LATE_COMMAND
            return self._clamped(self.lander.descend(self._state, 0.0) if late else self._command)
        return None

    def _clamped(self, values: Four) -> Four:
        """The command within its limits; counts what was limited."""
        kept, limited_by = clamped(values, self.level, self.envelope)
        for reason in limited_by:
            self._count(reason)
        return kept

    def _cut(self, reason: Reason) -> None:
        if self.phase in (FlightPhase.FLYING, FlightPhase.LANDING):
            assert reason.effect is Effect.CUT
            self._count(reason)
            self.phase, self.reason, self._offs = FlightPhase.CUTTING, reason, 0

    def _count(self, reason: Reason) -> None:
        self.counts[reason] += 1
