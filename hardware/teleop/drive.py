"""The next position of an arm from its operator's input, whatever the device."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from numpy import ndarray

from hardware.description import RobotDescription
from hardware.kinematics import ToolPose, tool_pose
from hardware.teleop.device import OperatorInput
from hardware.teleop.gripper import GripperDrive
from hardware.teleop.hand_motion import USUAL_LIMITS, HandMotion, ToolLimits
from hardware.teleop.jog import Jog
from hardware.teleop.tool_speed import ToolSpeed
from robo_rl.core.errors import ConfigError
from robo_rl.core.shapes import Float

Joints = Float[ndarray, " j"]
MATCH_RAD = 0.15  # largest distance of a leader arm from its follower at a takeover
LEAP_RAD = 0.5  # largest motion of a leader between two inputs, 25 rad/s; more is a fault of its encoders
SPEED = 0.3  # share of each joint's largest velocity at full deflection


class OperatorDrive:
    """Position to command while the switch is held; pure, so that recorded input replays exactly.

    `fault`: why the input moves nothing, as a sentence; empty while it does. `slowed`: see `Feedback`.
    """

    def __init__(
        self, robot: RobotDescription, limits: ToolLimits = USUAL_LIMITS, joints: Collection[str] = ()
    ) -> None:
        """joints: those that the operator drives while a policy drives the others; empty: all."""
        self._robot, self._limits = robot, limits
        self._driven = np.isin(robot.names, list(joints)) if joints else np.ones(len(robot.names), bool)
        self._jog = Jog.of(robot)
        self._speed_rad_s = SPEED * robot.column("velocity_rad_s")
        self._gripper, self._hand = GripperDrive(robot), HandMotion(limits)
        self._tool: tuple[ToolSpeed, ToolPose] | None = None
        self._matched = False  # the leader was near its follower
        self._leader_rad: Joints | None = None  # its position in the input before, while it was matched
        self.fault, self.slowed = "", 0.0

    def release(self) -> None:
        """Let go: the next input begins from where the arm is."""
        self._jog.release()
        self._hand.release()
        self._gripper.release()
        self._matched, self._leader_rad, self.slowed = False, None, 0.0

    def next(
        self, operator: OperatorInput, measured_rad: Joints, sent_rad: Joints | None, dt_s: float
    ) -> Joints | None:
        """Position after dt_s; None while the input moves nothing, for the reason `fault`.

        sent_rad: position that the filter sent last; None where it sent none.
        """
        self.fault = ""
        robot = self._robot
        start_rad = measured_rad
        if sent_rad is not None and robot.gripper is not None:
            start_rad = np.where(robot.is_gripper, sent_rad, measured_rad)
        target_rad = self._arm(operator, start_rad, dt_s)
        if target_rad is None:
            return None
        opening = self._gripper.next(operator.gripper, operator.gripper_toggle, start_rad, dt_s)
        if opening is not None and not self._places_gripper(operator):
            target_rad = np.where(robot.is_gripper, opening, target_rad)
        return target_rad

    def _places_gripper(self, operator: OperatorInput) -> bool:
        """True for a leader with a gripper of its own."""
        return operator.position_rad is not None and len(operator.position_rad) == len(self._robot.names)

    def _arm(self, operator: OperatorInput, start_rad: Joints, dt_s: float) -> Joints | None:
        if operator.position_rad is not None:
            return self._led(operator.position_rad, start_rad)
        if operator.rates is not None:
            speed_rad_s = self._filled(operator.rates) * self._speed_rad_s
        elif operator.twist is not None or operator.pose is not None:
            found = self._tool_speed(operator, start_rad, dt_s)
            if found is None:
                return None
            speed_rad_s = found
        else:  # only the gripper moves
            speed_rad_s = np.zeros(len(start_rad))
        return self._jog.next(speed_rad_s, start_rad, dt_s)

    def _tool_speed(self, operator: OperatorInput, start_rad: Joints, dt_s: float) -> Joints | None:
        try:
            self._tool = self._tool or (ToolSpeed(self._robot), tool_pose(self._robot))
        except ConfigError as error:
            self.fault = f"{str(error).rstrip('.')}, or use a device that turns joints."
            return None
        speeds, pose_of = self._tool
        at_rad = self._jog.at(start_rad, self._driven)
        if operator.pose is not None:
            twist = self._hand.twist(operator.pose, *pose_of(at_rad))
        else:
            assert operator.twist is not None
            limits = self._limits
            twist = operator.twist * np.repeat([limits.linear_m_s, limits.angular_rad_s], 3)
        motion = speeds.of(twist, at_rad, dt_s, self._driven)
        self.slowed = motion.slowed
        return motion.speed_rad_s

    def _led(self, position_rad: Joints, start_rad: Joints) -> Joints | None:
        """The leader's position, once it was near its follower; a leader may lack a gripper."""
        if len(position_rad) < len(start_rad):
            arm_rad, position_rad = position_rad, start_rad.copy()
            position_rad[~self._robot.is_gripper] = arm_rad
        compared = self._driven & ~self._robot.is_gripper
        if self._matched and self._leader_rad is not None:
            leap_rad = np.where(compared, np.abs(position_rad - self._leader_rad), 0.0)
            if leap_rad.max() > LEAP_RAD:
                self._matched = False
                name = self._robot.names[int(leap_rad.argmax())]
                self.fault = (
                    f"{name} of the leader jumped by {leap_rad.max():.2f} rad at once: check its encoder. "
                    "The arm is held until the leader is near its follower."
                )
                return None
        off_rad = np.where(compared, np.abs(position_rad - start_rad), 0.0)
        worst = int(off_rad.argmax())
        if not self._matched and off_rad[worst] > MATCH_RAD:
            name = self._robot.names[worst]
            self.fault = (
                f"Bring {name} of the leader to its follower first: it is {off_rad[worst]:.2f} rad away, "
                f"{MATCH_RAD} rad are near enough."
            )
            return None
        self._matched, self._leader_rad = True, position_rad
        return position_rad

    def _filled(self, rates: Float[ndarray, " r"]) -> Joints:
        """A pad with fewer axes than joints leaves the last joints alone; more axes than joints are not
        used.
        """
        joints = len(self._robot.names)
        return np.concatenate([rates[:joints], np.zeros(max(0, joints - len(rates)))])
