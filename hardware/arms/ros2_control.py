"""Any arm behind ros2_control: joint_trajectory_controller or forward_command_controller, over the bus.

Guards: a timer on the bus sends a hold when no command has come for `watchdog_s`. When this process dies the
controller keeps the last waypoint, two periods ahead at most: position controllers hold it, so never run this
on velocities.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from hardware.arms.bounds import Bounded, JointLimits, check_names
from hardware.bus.protocol import Bus, Profile
from hardware.driver import WATCHDOG_S
from hardware.messages import Floats, JointState, JointTrajectory
from hardware.states import ArmState, JointCommand
from robo_rl.core.errors import ConfigError, DriverError

TOPICS = {
    "trajectory": "joint_trajectory",
    "forward": "commands",
}  # kind of controller -> its topic, below its name
FIRST_STATE_S = 3.0
LOOKS = 10.0  # of the watchdog at the time since the last command, while it waits


class Ros2ControlDriver:
    """joints: their names in the order of commands; of a forward_command_controller, the order of its own
    parameter.

    controller: its name, such as "joint_trajectory_controller". kind: "trajectory" or "forward". low_rad,
    high_rad, velocity_rad_s: of the robot's description, one per joint. Connect before the bus is spun
    elsewhere.
    """

    def __init__(
        self,
        bus: Bus,
        joints: Sequence[str],
        low_rad: Sequence[float],
        high_rad: Sequence[float],
        velocity_rad_s: Sequence[float],
        controller: str = "joint_trajectory_controller",
        kind: str = "trajectory",
        rate_hz: float = 100.0,
        watchdog_s: float = WATCHDOG_S,
    ) -> None:
        if kind not in TOPICS:
            raise ConfigError(
                f"kind='{kind}' of a controller cannot be used, expected one of {', '.join(TOPICS)}."
            )
        limits = JointLimits(tuple(low_rad), tuple(high_rad), tuple(velocity_rad_s))
        if not len(joints) == len(set(joints)) == len(limits.low_rad):
            raise ConfigError(f"{len(limits.low_rad)} limits do not fit the joints {', '.join(joints)}.")
        self.names = tuple(joints)
        self._bus, self._period_s, self._watchdog_s = bus, 1.0 / rate_hz, watchdog_s
        self._robot = f"the arm behind '{controller}'"
        self._bounded = Bounded(self._robot, limits, rate_hz, bus.now)
        self._send = self._sender(controller, kind)
        self._state: ArmState | None = None
        self._told: tuple[str, ...] = ()  # joints of the newest message that was not ours
        self._connected, self._stopped, self._sequence = False, False, 0
        self._deadline_s: float | None = None
        self._why = "it was stopped"
        bus.subscribe("joint_states", JointState, Profile.STATE, self._on_state)
        bus.timer(watchdog_s / LOOKS, self._on_timer)

    def connect(self) -> None:
        self._state, self._told, self._stopped, self._deadline_s = None, (), False, None
        self._bounded.reset()
        end_s = self._bus.now() + FIRST_STATE_S
        self._bus.spin(lambda: self._state is not None or self._bus.now() >= end_s)
        if self._state is None:
            if self._told:
                check_names(self._robot, self._told, self.names)
            raise DriverError(
                f"No joint_states came within {FIRST_STATE_S:g} s. Is the joint_state_broadcaster active, in "
                "this namespace and this ROS_DOMAIN_ID?"
            )
        self._connected = True

    def read(self) -> ArmState:
        if self._state is None:
            raise DriverError(f"{self._robot} has told no joint positions yet. Call connect() first.")
        return self._state

    def write(self, command: JointCommand) -> JointCommand:
        if not self._connected or self._stopped:
            raise DriverError(
                f"{self._robot}: {self._why}, or is not connected. Connect to go on. Nothing was sent."
            )
        target_rad = self._bounded.next(command, self.read().position_rad)
        self._send(target_rad)
        self._deadline_s = self._bus.now() + self._watchdog_s
        return JointCommand(target_rad)

    def stop(self, reason: str) -> None:
        if self._deadline_s is not None:
            self._stopped, self._deadline_s, self._why = True, None, f"it was stopped ({reason})"
            self._send(self.read().position_rad)

    def close(self) -> None:
        self.stop("closed")
        self._connected = False

    def _on_state(self, message: JointState, received_s: float) -> None:
        if not set(self.names) <= set(message.names):
            self._told = message.names  # of a gripper, perhaps, which shares the topic
            return
        order = check_names(self._robot, message.names, self.names)
        velocity = message.velocity_rad_s
        self._state = ArmState(
            received_s, message.position_rad[order], velocity[order] if velocity.size else np.zeros(0)
        )

    def _on_timer(self) -> None:
        if self._deadline_s is not None and self._bus.now() > self._deadline_s:
            self.stop(f"no command came for {1e3 * self._watchdog_s:.0f} ms")

    def _sender(self, controller: str, kind: str) -> Callable[[Float[ndarray, " j"]], None]:
        topic = f"{controller}/{TOPICS[kind]}"
        if kind == "forward":
            floats = self._bus.publisher(topic, Floats, Profile.COMMAND)
            return lambda target_rad: floats(Floats(target_rad))
        waypoint = self._bus.publisher(topic, JointTrajectory, Profile.COMMAND)

        def send(target_rad: Float[ndarray, " j"]) -> None:
            self._sequence += 1
            times_s = np.array([2.0 * self._period_s])  # the next command replaces it halfway
            waypoint(JointTrajectory(0.0, self.names, target_rad[None], times_s, 0, self._sequence))

        return send
