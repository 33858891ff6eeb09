"""Ages of messages, and when the next command is due. Pure: time is handed in."""

from __future__ import annotations

import math

STALE_STATE_PERIODS, STALE_COMMAND_PERIODS = 3.0, 2.0  # ages at which robots and filters stop trusting
SILENT_FLIGHT_PERIODS = 2.5  # age of a craft's command: one may be left out, or be lost, without a hold
START_PERIODS = 5.0  # periods without a command after which the next one counts as a first one
SLACK_S = 1e-9  # rounding allowed when times are compared
_LEAST = 0.2  # shortest time between two commands, in periods
_LATE = 1.5  # longest wait for a command before one is sent without it, in periods
_MOST = 2.0  # longest time for which a step is computed, in periods


def is_stale(now_s: float, received_s: float, limit_s: float) -> bool:
    """True for a message older than the limit, received in the future, or never received."""
    return not -SLACK_S <= now_s - received_s <= limit_s + SLACK_S


def age_limit_s(most_s: float, look_s: float) -> float:
    """Age at which a message counts as stale when the next look at it comes `look_s` later.

    At least half of `most_s`: otherwise rare looks would make every message stale.
    """
    return most_s - min(look_s, 0.5 * most_s)


class SendSchedule:
    """When the next command to the robot is due.

    Promise: two commands are at least 0.2 periods apart, and no step is computed for more than 2 periods,
    however long nothing was sent.
    """

    def __init__(self, period_s: float) -> None:
        self.period_s = period_s
        self._sent_at_s = math.nan
        self._urgent = False

    def restart(self) -> None:
        """Forget the last sending: the next command is due at once."""
        self._sent_at_s = math.nan

    def request_now(self) -> None:
        """Send as soon as sending is allowed, because there is something new to send."""
        self._urgent = True

    def due_s(self, now_s: float, following: bool) -> float | None:
        """Seconds to compute the next step for; None while it is too early to send.

        following: a new command is expected, so the filter waits a little longer for it.
        """
        if not math.isfinite(self._sent_at_s):
            return self.period_s
        since_s = now_s - self._sent_at_s
        due = _LEAST if self._urgent else (_LATE if following else 1.0)
        if since_s < due * self.period_s - SLACK_S:
            return None
        return min(since_s, _MOST * self.period_s)

    def sent(self, now_s: float) -> None:
        """Note that a command was sent."""
        self._sent_at_s, self._urgent = now_s, False
