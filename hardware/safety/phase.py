"""Phases of an arm's safety filter: disarmed, holding or following, and stopping."""

from __future__ import annotations

import math
from enum import Enum

from hardware.safety.reasons import Reason

_SETTLED = 3  # times that the final position is sent before the filter falls silent


class Phase(Enum):
    """Phase of an arm's safety filter."""

    DISARMED = "disarmed"  # silent
    ARMED = "armed"  # following commands, or holding position
    STOPPING = "stopping"  # braking to a stop that only a new arming ends


class PhaseMachine:
    """Phase of the filter, and the reason why it does not follow commands (None while it does).

    Promises:
    - only `arm` leaves DISARMED;
    - a stop ends only in DISARMED, and `arm` must not be called before that (see `refusal`);
    - a hold that lasts longer than `hold_s` is reported by `held_too_long`, also when its reason changes
      meanwhile; waiting for the first command after arming or a takeover is not limited.
    """

    def __init__(self, hold_s: float, stop_ticks: float) -> None:
        """hold_s: longest hold before a stop. stop_ticks: commands after which a stop ends in any case."""
        self.phase = Phase.DISARMED
        self.reason: Reason | None = Reason.NOT_ARMED
        self._hold_s, self._stop_ticks = hold_s, stop_ticks
        self._held_since_s = math.nan
        self._sent_at_rest = self._sent_stopping = (
            0  # commands sent since the arm rests; since the stop began
        )

    def refusal(self, emergency: bool, two_publishers: bool, state_is_fresh: bool) -> Reason | None:
        """Why the filter must not be armed; None where it may.

        two_publishers: a topic has two publishers.
        """
        if emergency:
            return Reason.EMERGENCY_LATCHED
        if two_publishers:
            return Reason.TWO_PUBLISHERS
        if self.phase is Phase.STOPPING:
            return Reason.STOPPING
        return None if state_is_fresh else Reason.NO_STATE

    def arm(self, now_s: float) -> None:
        """Begin to hold position until the first command."""
        self.phase, self.reason, self._held_since_s = Phase.ARMED, Reason.WAITING, now_s

    def disarm(self) -> None:
        """Fall silent at once."""
        self.phase = Phase.DISARMED

    def stop(self, reason: Reason) -> bool:
        """Begin to stop. True when the reason is new: that of a hold was counted when the hold began."""
        new = reason is not self.reason
        self.phase, self.reason = Phase.STOPPING, reason
        self._sent_at_rest = self._sent_stopping = 0
        return new

    def follow(self) -> None:
        """Follow commands."""
        self.reason = None

    def hold(self, reason: Reason, now_s: float) -> bool:
        """Hold position. True when the hold begins, or goes on for another reason."""
        if reason is self.reason:
            return False
        goes_on = self.reason not in (None, Reason.WAITING)
        self._held_since_s = self._held_since_s if goes_on else now_s
        self.reason = reason
        return True

    def held_too_long(self, now_s: float) -> bool:
        """True when the hold has lasted so long that it must become a stop."""
        return self.reason is not Reason.WAITING and now_s - self._held_since_s > self._hold_s

    def note_stopping_command(self, at_rest: bool) -> None:
        """Count a command sent while stopping; disarm once the arm rests, or after a limited number.

        The number is limited because an arm that is pushed by hand may never rest.
        """
        self._sent_stopping += 1
        self._sent_at_rest = self._sent_at_rest + 1 if at_rest else 0
        if self._sent_at_rest >= _SETTLED or self._sent_stopping > self._stop_ticks:
            self.phase = Phase.DISARMED
