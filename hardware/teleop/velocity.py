"""Joint positions from streamed velocities: of joints (JointJog) or of the tool (TwistStamped).

A message is followed for 0.1 s after its receipt, so that the arm holds when the program ends. Speeds are cut
to the velocity limits of the description; a twist is slowed down as a whole, so that the tool keeps its
direction.
"""

from __future__ import annotations

import math

import numpy as np
from numpy import ndarray

from hardware.description import RobotDescription
from hardware.messages import JointJog, Twist
from hardware.safety.message_parsing import StampOrder
from hardware.safety.reasons import Reason
from hardware.teleop.jog import Jog
from hardware.teleop.tool_speed import ToolSpeed
from robo_rl.core.errors import ConfigError
from robo_rl.core.shapes import Bool, Float

FOLLOWED_S = 0.1
EARLY = 0.9  # share of a command period after a command within which none is made
Joints = Float[ndarray, " j"]


class VelocityTeleop:
    """The newest velocities that came, and the positions to which they lead."""

    def __init__(self, robot: RobotDescription) -> None:
        self._robot, self._period_s = robot, 1.0 / robot.command_hz
        self._limit_rad_s = robot.column("velocity_rad_s")
        self._jog = Jog.of(robot)
        self._orders: dict[type, StampOrder] = {JointJog: StampOrder(), Twist: StampOrder()}
        self._tool: ToolSpeed | None = None
        self._newest: dict[type, tuple[JointJog | Twist, float]] = {}  # by kind, with the time of receipt
        self._commanded_s = -math.inf

    def take(self, message: JointJog | Twist, received_s: float) -> str:
        """Follow a message from now on. Returns why it is dropped, without a full stop; else "".

        A jog of the gripper alone is followed beside a twist; any other message replaces the one before.
        """
        fault = self._jog_fault(message) if isinstance(message, JointJog) else self._twist_fault(message)
        order = self._orders[type(message)]
        if fault or (late := order.check(message.stamp_s)) is None:
            if not fault:
                order.take(message.stamp_s)
                if isinstance(message, JointJog) and not self._only_grips(message):
                    self._newest.pop(Twist, None)
                elif isinstance(message, Twist) and not self._grips():
                    self._newest.pop(JointJog, None)
                self._newest[type(message)] = message, received_s
            return fault
        return (
            Reason.OUT_OF_ORDER.sentence
            if late is Reason.OUT_OF_ORDER
            else "its stamp is not a finite number"
        )

    def forget_stamps(self) -> None:
        """Accept any stamp next, as after a clock was set back."""
        for order in self._orders.values():
            order.forget()

    def release(self) -> None:
        """Begin again from where the arm is."""
        if self._newest:
            self._newest, self._commanded_s = {}, -math.inf
            self._jog.release()

    def next(
        self, measured_rad: Joints, now_s: float, driven: Bool[ndarray, " j"] | None = None
    ) -> Joints | None:
        """Position to command now; None between command periods, and without a message in the last 0.1 s.

        driven: joints that the human drives; None: all.
        """
        fresh = {
            kind: message
            for kind, (message, received_s) in self._newest.items()
            if 0.0 <= now_s - received_s <= FOLLOWED_S
        }
        if not fresh:
            self.release()
            return None
        since_s = now_s - self._commanded_s
        if since_s < EARLY * self._period_s:
            return None
        self._commanded_s = now_s
        dt_s = self._period_s if math.isinf(since_s) else min(since_s, 2.0 * self._period_s)
        speed_rad_s, at_rad = np.zeros(len(self._robot.names)), self._jog.at(measured_rad, driven)
        for message in fresh.values():
            if isinstance(message, JointJog):
                speed_rad_s += self._of_joints(message)
            else:
                speed_rad_s += self._of(message, at_rad, dt_s, driven)
        cut_rad_s = np.clip(speed_rad_s, -self._limit_rad_s, self._limit_rad_s)
        return self._jog.next(cut_rad_s, measured_rad, dt_s)

    def _grips(self) -> bool:
        """True while the newest jog moves the gripper alone."""
        jog = self._newest.get(JointJog)
        return jog is not None and isinstance(jog[0], JointJog) and self._only_grips(jog[0])

    def _only_grips(self, message: JointJog) -> bool:
        gripper = self._robot.gripper
        return gripper is not None and tuple(message.names) == (gripper.joint,)

    def _of_joints(self, message: JointJog) -> Joints:
        speed_rad_s = np.zeros(len(self._robot.names))
        for name, value in zip(message.names, message.velocity_rad_s, strict=True):
            speed_rad_s[self._robot.names.index(name)] = value
        return speed_rad_s

    def _of(self, message: Twist, at_rad: Joints, dt_s: float, driven: Bool[ndarray, " j"] | None) -> Joints:
        """Joint speeds that move the tool by this twist."""
        assert self._tool is not None  # made when the message was taken
        twist = np.concatenate([message.linear_m_s, message.angular_rad_s])
        return self._tool.of(twist, at_rad, dt_s, driven).speed_rad_s

    def _jog_fault(self, message: JointJog) -> str:
        names = self._robot.names
        if unknown := [name for name in message.names if name not in names]:
            return f"it names {', '.join(unknown[:5])}, expected joints of {', '.join(names)}"
        if len(set(message.names)) != len(message.names):
            return "it names a joint twice"
        if not message.names or np.shape(message.velocity_rad_s) != (len(message.names),):
            return (
                "it has not one velocity for each of its joints; displacements are not followed: send "
                "velocities"
            )
        return (
            ""
            if np.isfinite(message.velocity_rad_s).all()
            else "it holds a velocity that is not a finite number"
        )

    def _twist_fault(self, message: Twist) -> str:
        base = self._robot.frame_id
        if message.frame not in ("", base):
            return (
                f"its frame is '{message.frame[:50]}', expected '{base}', the frame_id of the robot's "
                "description, or none"
            )
        if not (np.isfinite(message.linear_m_s).all() and np.isfinite(message.angular_rad_s).all()):
            return "it holds a velocity that is not a finite number"
        if float(np.abs([*message.linear_m_s, *message.angular_rad_s]).max()) > 1e6:
            return "it holds a velocity above 1e6: expected m/s and rad/s"
        try:
            self._tool = self._tool or ToolSpeed(self._robot)
        except ConfigError as error:
            return f"{str(error).rstrip('.')}, or send teleop/joint_jog"
        return ""
