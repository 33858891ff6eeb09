"""Driving: an operator's input as velocities on the bus, behind a dead-man switch.

While the operator is in control, a velocity is sent at the command rate, zeros included, so that the filter
follows the operator, and no policy takes the arm back between two key presses. Input counts for DEAD_MAN_S:
without newer input, a lost connection or a released switch, the next message is zero.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy import ndarray

from hardware.bus.protocol import Bus
from hardware.description import RobotDescription
from hardware.kinematics import tool_jacobian
from hardware.messages import JointJog, Twist
from hardware.nodes.shared.intervention_flag import InterventionFlag
from hardware.nodes.shared.send_clock import SendClock
from hardware.topics import JOINT_JOG, TWIST
from robo_rl.apps.recording.driving.tracked_hand import HandCommand, TrackedHand
from robo_rl.core.errors import ConfigError
from robo_rl.core.shapes import Float

Mode = Literal["tool", "joints"]
DEAD_MAN_S = 0.2  # input older than this counts as released; the page sends every 33 ms
TOOL_M_S, TOOL_RAD_S, JOINT_SHARE = 0.15, 0.8, 0.4  # full deflection: of the tool, and of the joints' limits
TOOL_AXES = ("x", "y", "z", "roll", "pitch", "yaw")


@dataclass(frozen=True)
class DriveInput:
    """Newest input: values in -1 ... 1 for x, y, z, roll, pitch, yaw of the tool and opening of the gripper,
    or for each joint.
    """

    mode: Mode
    values: Float[ndarray, " v"]
    received_s: float


class PageDrive:
    """Publishes on `teleop/twist`, `teleop/joint_jog` and `teleop/intervention`.

    human: True while the operator is in control, False while a policy is.
    """

    def __init__(self, bus: Bus, robot: RobotDescription) -> None:
        self._bus, self._robot = bus, robot
        self.human = True
        self.speed = 1.0  # share of the full speed
        self.tool = _has_geometry(robot)  # False: only joints can be driven
        self.tracked = TrackedHand(robot, bus.now) if self.tool else None
        self._input: DriveInput | None = None
        self._clock = SendClock(bus)
        self._full_rad_s = JOINT_SHARE * robot.column("velocity_rad_s")
        self._flag = InterventionFlag(bus)
        self._twist, self._jog = TWIST.publisher(bus), JOINT_JOG.publisher(bus)

    @property
    def moving(self) -> bool:
        """True while fresh input asks for motion."""
        return bool(self._fresh().any()) or (self.tracked is not None and self.tracked.feedback.driving)

    @property
    def mode(self) -> Mode:
        """What the newest input drives."""
        return self._input.mode if self._input else "tool" if self.tool else "joints"

    def take(self, mode: Mode, values: Float[ndarray, " v"]) -> None:
        """Take an input. Raises ConfigError for one that this robot cannot follow."""
        count = self._count(mode)
        if mode == "tool" and not self.tool:
            raise self._no_tool()
        if mode == "tool" and len(values) == len(TOOL_AXES):
            values = np.append(values, 0.0)
        if len(values) != count:
            raise ConfigError(f"{len(values)} values to drive {mode} came, expected {count}.")
        self._input = DriveInput(mode, np.clip(values, -1.0, 1.0), self._bus.now())

    def take_pose(self, message: Mapping[str, Any]) -> None:
        """Take a pose of a tracked hand. Raises ConfigError for a robot whose tool cannot be driven."""
        if self.tracked is None:
            raise self._no_tool()
        self.tracked.put(message)

    def follow(self, scale: float, yaw_rad: float) -> None:
        """Follow tracked hands by this scale, of an operator who looks into this direction."""
        if self.tracked is not None:
            self.tracked.follow(scale, yaw_rad)

    def release(self) -> None:
        """Stop: the next message is zero."""
        if self.tracked is not None:
            self.tracked.release()
        if self._input is not None:
            self._input = DriveInput(self._input.mode, np.zeros_like(self._input.values), -math.inf)

    def hand(self, human: bool) -> None:
        """Give control to the operator, or to the policy."""
        self.human = human
        self.release()

    def was_ended(self) -> bool:
        """True once after another program has given the arm back to the policy, which is then in control."""
        ended = self._flag.was_ended()
        if ended:
            self._flag.set(False)
            self.hand(False)
        return ended

    def tick(self, armed: bool, held: bool, at_rad: Float[ndarray, " j"] | None = None) -> None:
        """Send the present velocity. armed: of the filter. held: the arm stays where it is, as in a pause,
        whoever is in control. at_rad: where the arm was sent last, or is measured, for a tracked hand.
        """
        wanted = self.human or held
        self._flag.set(wanted)  # also before arming, or a policy would be followed until the page hears of it
        command = self._follow_hand(at_rad) if armed and self.human and not held else None
        if command is None and self.tracked is not None:
            self.tracked.hold()
        if command is not None:
            self._send_hand(command)
        elif armed and wanted:
            self._send(np.zeros_like(self._fresh()) if held else self._fresh())

    def let_go(self) -> None:
        """End the intervention, as the app ends."""
        self.release()
        self._flag.set(False)

    def _fresh(self) -> Float[ndarray, " v"]:
        """Values of the newest input; zeros once it has expired."""
        count = self._count(self.mode)
        if self._input is None or self._bus.now() - self._input.received_s > DEAD_MAN_S:
            return np.zeros(count)
        return self._input.values

    def _count(self, mode: Mode) -> int:
        return len(TOOL_AXES) + 1 if mode == "tool" else len(self._robot.names)

    def _follow_hand(self, at_rad: Float[ndarray, " j"] | None) -> HandCommand | None:
        if self.tracked is None:
            return None
        self.tracked.speed = self.speed
        return self.tracked.next(at_rad, 1.0 / self._robot.command_hz)

    def _send_hand(self, command: HandCommand) -> None:
        stamp_s, frame, gripper = self._clock.stamp(), self._robot.frame_id, self._robot.gripper
        self._twist(Twist(stamp_s, command.twist[:3], command.twist[3:], frame))
        if gripper is not None:
            self._jog(JointJog(stamp_s, (gripper.joint,), np.array([command.gripper]), frame))

    def _no_tool(self) -> ConfigError:
        return ConfigError(
            f"The description of '{self._robot.name}' lacks axis and offset_m of a joint, so its tool "
            "cannot be driven. Drive the joints."
        )

    def _send(self, values: Float[ndarray, " v"]) -> None:
        stamp_s, frame = self._clock.stamp(), self._robot.frame_id
        if self.mode == "tool":
            self._twist(
                Twist(
                    stamp_s,
                    self.speed * TOOL_M_S * values[:3],
                    self.speed * TOOL_RAD_S * values[3:6],
                    frame,
                )
            )
            if (gripper := self._robot.gripper) is not None:
                opening = math.copysign(values[6], values[6] * (gripper.open_at - gripper.closed_at))
                rate = self.speed * opening * self._full_rad_s[self._robot.names.index(gripper.joint)]
                self._jog(JointJog(stamp_s, (gripper.joint,), np.array([rate]), frame))
        else:
            self._jog(JointJog(stamp_s, self._robot.names, self.speed * self._full_rad_s * values, frame))


def _has_geometry(robot: RobotDescription) -> bool:
    try:
        tool_jacobian(robot)
    except ConfigError:
        return False
    return True
