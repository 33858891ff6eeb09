"""Driver of an arm of ros2_control: joint_trajectory_controller or forward_command_controller, over the bus.

Watchdog: a timer on the bus sends the measured position when no command has come for `watchdog_s`. If this
process dies, the controller keeps the last waypoint, which is at most two periods ahead. A position
controller holds it; do not use this driver with a velocity controller.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy import ndarray

from hardware.arms.bounds import CommandLimiter, JointLimits, check_names
from hardware.bus.protocol import Bus, Profile
from hardware.driver import WATCHDOG_S
from hardware.messages import Floats, JointState, JointTrajectory
from hardware.states import ArmState, JointCommand
from robo_rl.core.errors import ConfigError, DriverError
from robo_rl.core.shapes import Float

# Kind of controller -> its topic, below the name of the controller.
TOPICS = {"trajectory": "joint_trajectory", "forward": "commands"}
FIRST_STATE_S = 3.0
CHECKS = 10.0  # checks of the command's age within watchdog_s


class Ros2ControlDriver:
    """Driver of an arm behind a ros2_control controller; see `hardware.driver.Driver`.

    joints: names in the order of commands; for a forward_command_controller, the order of its parameter
    `joints`. low_rad, high_rad, velocity_rad_s: limits from the robot's description, one per joint.
    controller: name, such as "joint_trajectory_controller". kind: "trajectory" or "forward". rate_hz: of
    commands. `connect` spins the bus, so call it before another loop does. Raises ConfigError for an unknown
    kind or for limits that do not fit the joints.
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
            raise ConfigError(f"kind='{kind}' is no kind of controller; expected one of {', '.join(TOPICS)}.")
        limits = JointLimits(tuple(low_rad), tuple(high_rad), tuple(velocity_rad_s))
        if not len(joints) == len(set(joints)) == len(limits.low_rad):
            raise ConfigError(
                f"{len(limits.low_rad)} limits do not fit the joints {', '.join(joints)}: expected one per "
                "joint, and different names."
            )
        self.names = tuple(joints)
        self._bus, self._period_s, self._watchdog_s = bus, 1.0 / rate_hz, watchdog_s
        self._robot = f"the arm behind '{controller}'"
        self._limiter = CommandLimiter(self._robot, limits, rate_hz, bus.now)
        self._send = self._sender(controller, kind)
        self._state: ArmState | None = None
        self._other_joints: tuple[str, ...] = ()  # of the newest message that lacks joints of this arm
        self._connected, self._stopped = False, False
        self._deadline_s: float | None = None
        self._stop_cause = "it was stopped"
        bus.subscribe("joint_states", JointState, Profile.STATE, self._on_state)
        bus.timer(watchdog_s / CHECKS, self._on_timer)

    def connect(self) -> None:
        self._state, self._other_joints, self._stopped, self._deadline_s = None, (), False, None
        self._limiter.reset()
        end_s = self._bus.now() + FIRST_STATE_S
        self._bus.spin(lambda: self._state is not None or self._bus.now() >= end_s)
        if self._state is None:
            if self._other_joints:
                check_names(self._robot, self._other_joints, self.names)
            raise DriverError(
                f"No joint_states came within {FIRST_STATE_S:g} s. Check that the joint_state_broadcaster is "
                "active, in this namespace and this ROS_DOMAIN_ID."
            )
        self._connected = True

    def read(self) -> ArmState:
        if self._state is None:
            raise DriverError(f"{self._robot} has sent no joint positions yet. Call connect() first.")
        return self._state

    def write(self, command: JointCommand) -> JointCommand:
        if not self._connected or self._stopped:
            raise DriverError(
                f"{self._robot}: {self._stop_cause}, or is not connected. Nothing was sent. Connect, then "
                "try again."
            )
        target_rad = self._limiter.next(command, self.read().position_rad)
        self._send(target_rad)
        self._deadline_s = self._bus.now() + self._watchdog_s
        return JointCommand(target_rad)

    def stop(self, reason: str) -> None:
        if self._deadline_s is not None:
            self._stopped, self._deadline_s, self._stop_cause = True, None, f"it was stopped ({reason})"
            self._send(self.read().position_rad)

    def close(self) -> None:
        self.stop("closed")
        self._connected = False

    def _on_state(self, message: JointState, received_s: float) -> None:
        if not set(self.names) <= set(message.names):
            self._other_joints = message.names  # for example a gripper that publishes on the same topic
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
            times_s = np.array([2.0 * self._period_s])  # the next command replaces it after one period
            waypoint(JointTrajectory(0.0, self.names, target_rad[None], times_s))

        return send
