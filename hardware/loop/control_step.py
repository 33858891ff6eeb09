"""One decision of a policy, spread over the command periods of its control step.

    command j = from + min(1, j / length) (to - from),   j = 1, 2, ... until the step has passed

from: the command before; at the first one after a silence the arm's position, because the safety filter
accepts no first command that is far from it. to: the decision, reached at the end of the step. length:
command periods from the decision to the end of its step. Where the two rates have no whole ratio, steps of
different numbers of commands follow each other: 20 Hz of 50 Hz is 3, 2, 3, 2, ... commands.
"""

from __future__ import annotations

from numpy import ndarray

from robo_rl.core.shapes import Float

_ROUNDING = 1e-6  # in command periods


class ControlStep:
    """periods: command periods in a control step, at least 1."""

    def __init__(self, periods: float) -> None:
        self._periods = periods
        self._last: Float[ndarray, " j"] | None = None
        self.reset()

    def reset(self) -> None:
        """Begin anew: the next decision starts from where the arm is."""
        self._left, self._passed, self._length = 0.0, 0, 1.0
        self._last = None

    @property
    def is_over(self) -> bool:
        """True when the next command needs a decision."""
        return self._left <= _ROUNDING

    @property
    def length(self) -> float:
        """Command periods from now to the end of a step that begins now."""
        return self._left + self._periods

    def begin(self, decided: Float[ndarray, " j"], measured: Float[ndarray, " j"] | None = None) -> None:
        """Take the decision of the step that begins now.

        measured: position of the arm; None: unknown, so that a first decision is commanded at once.
        """
        self._length, self._passed, self._to = self.length, 0, decided
        self._left = self._length
        start = measured if self._last is None else self._last
        self._from = decided if start is None else start

    def next(self) -> Float[ndarray, " j"]:
        """Command of this period."""
        self._left -= 1.0
        self._passed += 1
        share = self._passed / self._length
        ahead = share >= 1.0 - _ROUNDING
        self._last = self._to if ahead else self._from + share * (self._to - self._from)
        return self._last
