"""Rates of a craft's states and of the decisions on them, and a fault where they miss the bundle's rate."""

from __future__ import annotations

from collections.abc import Callable

from hardware.loop.timing import RateMeter
from hardware.nodes.shared.fault_log import FaultLog

_SLOW = 0.9  # share of the bundle's rate below which decisions are too rare


class DecisionRate:
    """Counts states, and those that are due for a decision."""

    def __init__(self, node: str, control_hz: float, say: Callable[[str], None]) -> None:
        self._control_hz, self._slow = control_hz, FaultLog(node, say)
        self._states, self._decisions = RateMeter(), RateMeter()

    def see(self, received_s: float, due: bool) -> None:
        """Count a state. due: it is to be decided on."""
        self._states.see(received_s)
        if due:
            self._decisions.see(received_s)

    def fault(self, now_s: float) -> str:
        """Sentence on states that lead to fewer decisions than the bundle's rate, printed when it begins;
        empty without any. There are never more. Call it as often as the node reports.
        """
        states_hz, decisions_hz = self._states.look(now_s), self._decisions.look(now_s)
        least_hz = _SLOW * self._control_hz
        if states_hz is None or decisions_hz is None or decisions_hz >= least_hz:
            self._slow.end(now_s)
            return ""
        comes = "at less than the" if states_hz < least_hz else "too irregularly for the"
        # Without the number, because each sentence is a fault of its own in the terminal.
        self._slow.begin(f"odom comes {comes} {self._control_hz:g} Hz of the bundle", now_s)
        return self._slow.present

    @property
    def values(self) -> dict[str, str]:
        """Newest rates, for a status."""
        rates = {"odom_hz": self._states.hz, "decision_hz": self._decisions.hz}
        return {name: f"{hz:.1f}" for name, hz in rates.items() if hz is not None}
