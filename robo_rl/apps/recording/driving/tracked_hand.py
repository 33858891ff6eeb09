"""Velocities by which the tool follows a hand that a page tracks: a phone, a headset or a drag.

The hand is a `PoseStream`, as of `device=pose_stream`: its input is checked, held by a clutch, and followed
by `HandMotion`. The page's drive sends the resulting twist on the bus, as it does for keys.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy import ndarray

from hardware.description import RobotDescription
from hardware.kinematics import tool_pose
from hardware.teleop.device import Feedback
from hardware.teleop.gripper import GripperDrive
from hardware.teleop.hand_motion import HandMotion, ToolLimits
from hardware.teleop.input_check import checked
from hardware.teleop.pose_stream import PoseStream
from hardware.teleop.tool_speed import ToolSpeed
from robo_rl.core.shapes import Float

TOOL_M_S, TOOL_RAD_S = 0.25, 1.0  # largest speeds of the tool
GAIN_HZ = 10.0  # lower than that of a device beside the filter: the command comes back over the bus
GRIPPER_GAIN_HZ = 10.0
Joints = Float[ndarray, " j"]


@dataclass(frozen=True, slots=True)
class HandCommand:
    """twist: of the tool in the base frame [m/s, rad/s]; gripper: speed of its joint, 0 without one."""

    twist: Float[ndarray, " 6"]
    gripper: float


class TrackedHand:
    """A hand's poses, and the twist that follows them while their clutch is held.

    Raises ConfigError for a robot whose description has no axes. clock: of the bus.
    """

    def __init__(self, robot: RobotDescription, clock: Callable[[], float]) -> None:
        self._robot, self._clock = robot, clock
        self._pose_of, self._speeds = tool_pose(robot), ToolSpeed(robot)
        self._gripper = GripperDrive(robot)
        self.scale, self.yaw_rad, self.speed = 1.0, 0.0, 1.0
        self.follow(1.0, 0.0)

    @property
    def feedback(self) -> Feedback:
        """What the page may show or let its operator feel."""
        return self._stream.feedback

    def follow(self, scale: float, yaw_rad: float) -> None:
        """Follow the hand anew. scale: metres of the tool per metre of the hand; yaw_rad: direction into
        which the operator looks, 0 along the x axis of the base.
        """
        self.scale, self.yaw_rad = scale, yaw_rad
        self._stream = PoseStream(yaw_rad=yaw_rad, clock=self._clock)
        self._engage_again()

    def put(self, message: Mapping[str, Any]) -> None:
        """Take a pose. Raises DataError for one that makes no sense."""
        self._stream.put(message)

    def release(self) -> None:
        """Let go, as after a lost connection: nothing moves before the next pose with the clutch held."""
        self._stream.lose()
        self.hold()

    def hold(self) -> None:
        """Keep the arm where it is; a clutch that stays held engages anew, without a jump."""
        self._motion.release()
        self._gripper.release()
        self._stream.send_feedback(Feedback(False))

    def next(self, at_rad: Joints | None, dt_s: float) -> HandCommand | None:
        """Command of this tick; None while the clutch is not held. at_rad: where the arm was sent last, or
        is measured; None before the first state.
        """
        operator, _ = checked(self._stream.get_action(self._clock()), self._robot)
        if not operator.held or operator.pose is None or at_rad is None:
            self.hold()
            return None
        twist = self._motion.twist(operator.pose, *self._pose_of(at_rad))
        twist = twist * self.speed
        slowed = self._speeds.of(twist, at_rad, dt_s).slowed
        self._stream.send_feedback(Feedback(True, slowed, at_rad))
        wanted = self._gripper.next(operator.gripper, operator.gripper_toggle, at_rad, dt_s)
        return HandCommand(twist, 0.0 if wanted is None else self._gripper_speed(wanted, at_rad))

    def _gripper_speed(self, wanted: float, at_rad: Joints) -> float:
        joint = int(self._robot.is_gripper.argmax())
        most = float(self._robot.column("velocity_rad_s")[joint])
        return float(np.clip(GRIPPER_GAIN_HZ * (wanted - at_rad[joint]), -most, most))

    def _engage_again(self) -> None:
        self._motion = HandMotion(ToolLimits(TOOL_M_S, TOOL_RAD_S, self.scale), GAIN_HZ)
        self._gripper.release()
