"""Armed motors of one connection: whoever disarms them keeps them disarmed."""

from __future__ import annotations

from robo_rl.core.errors import DriverError


class ArmedMotors:
    """Remembers that the motors were armed. A driver requests armed motors only before that.

    robot: the device in words, for error messages.
    """

    def __init__(self, robot: str) -> None:
        self._robot, self.were_armed = robot, False

    def check(self, armed: bool, off: bool) -> None:
        """Note whether the motors are armed now.

        off: the present command switches them off, as at the end of a landing. Raises DriverError when they
        were armed before and no longer are, except for such a command.
        """
        if armed:
            self.were_armed = True
        elif self.were_armed and not off:
            raise DriverError(
                f"{self._robot} was disarmed, by a pilot, a ground station or itself. Nothing was sent. "
                "Connect again to fly."
            )
