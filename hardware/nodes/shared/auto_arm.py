"""Arming without a call (`arm=true`), after the time in which a pressed emergency stop is heard."""

from __future__ import annotations

from collections.abc import Callable

from hardware.bus.protocol import Answer, Bus
from hardware.nodes.shared.emergency_stop import EmergencyStop


class AutoArm:
    """Calls `arm` until it succeeds once; a stop of any kind cancels it.

    A state can arrive before the latched `estop` and `teleop/intervention` of programs that run already. The
    first attempt is therefore made when these programs must have been discovered, and no publisher of `estop`
    has appeared just now: its last message, if there is one, is on its way.
    """

    def __init__(self, bus: Bus, wanted: bool, estop: EmergencyStop, arm: Callable[[], Answer]) -> None:
        self._bus, self._wanted, self._estop, self._arm = bus, wanted, estop, arm
        self._since_s = bus.now()

    def cancel(self) -> None:
        self._wanted = False

    def attempt(self) -> None:
        """Arm if that is wanted and safe; called with each state."""
        newest_s = max(self._since_s, self._estop.appeared_s)
        if self._wanted and self._bus.now() - newest_s >= self._bus.discovery_s:
            self._wanted = not self._arm()[0]
