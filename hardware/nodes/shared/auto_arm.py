"""Arming without a call (`arm=true`), once it is known that no emergency stop is pressed."""

from __future__ import annotations

from collections.abc import Callable

from hardware.bus.protocol import Answer, Bus
from hardware.nodes.shared.emergency_stop import EmergencyStop

_PATIENT_S = 3.0  # then the wait for a publisher of `estop` is reported


class AutoArm:
    """Calls `arm` until it succeeds once; a stop of any kind cancels it.

    A state can arrive before the latched `estop` and `teleop/intervention` of programs that run already. The
    first attempt is therefore made when these programs must have been discovered, and heard if they publish
    `estop`.
    """

    def __init__(
        self,
        bus: Bus,
        wanted: bool,
        estop: EmergencyStop,
        arm: Callable[[], Answer],
        say: Callable[[str], None],
    ) -> None:
        self._bus, self._wanted, self._estop, self._arm, self._say = bus, wanted, estop, arm, say
        self._since_s, self._told = bus.now(), False

    def cancel(self) -> None:
        self._wanted = False

    def attempt(self) -> None:
        """Arm if that is wanted and safe; called with each state."""
        if not self._wanted:
            return
        waited_s = self._bus.now() - self._since_s
        if waited_s >= self._bus.discovery_s and self._estop.heard:
            self._wanted = not self._arm()[0]
        elif waited_s > _PATIENT_S and not self._told:
            self._told = True
            self._say(
                f"{self._bus.name}: arm=true waits, because a program that publishes estop has not told "
                "whether the stop is pressed. Let it publish false."
            )
