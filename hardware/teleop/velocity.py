"""Joint positions from streamed velocities: of joints (JointJog) or of the tool (TwistStamped).

A message is followed for 0.1 s after its receipt, so that the arm holds when the program ends. Speeds are cut
to the velocity limits of the description; a twist is slowed down as a whole, so that the tool keeps its
direction.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy import ndarray

from hardware.description import RobotDescription
from hardware.kinematics import tool_jacobian
from hardware.messages import JointJog, Twist
from hardware.safety.intake import Order
from hardware.safety.reasons import Reason
from hardware.teleop.jog import Jog
from robo_rl.core.errors import ConfigError
from robo_rl.core.shapes import Float

FOLLOWED_S = 0.1
EARLY = 0.9  # share of a command period after a command within which none is made
DAMPING = 0.05  # damping of the inverse kinematics near singular positions [m and rad per rad]
Joints = Float[ndarray, " j"]


class VelocityTeleop:
    """The newest velocities that came, and the positions to which they lead."""

    def __init__(self, robot: RobotDescription) -> None:
        self._robot, self._period_s = robot, 1.0 / robot.command_hz
        self._limit_rad_s = robot.column("velocity_rad_s")
        self._jog = Jog(robot.column("low_rad"), robot.column("high_rad"), self._limit_rad_s)
        self._orders: dict[type, Order] = {JointJog: Order(), Twist: Order()}
        self._jacobian: Callable[[Joints], Float[ndarray, "6 j"]] | None = None
        self._newest: JointJog | Twist | None = None
        self._received_s = self._commanded_s = -math.inf

    def take(self, message: JointJog | Twist, received_s: float) -> str:
        """Follow a message from now on. Returns why it is dropped, without a full stop; else ""."""
        fault = self._jog_fault(message) if isinstance(message, JointJog) else self._twist_fault(message)
        order = self._orders[type(message)]
        if fault or (late := order.judge(message.stamp_s)) is None:
            if not fault:
                order.take(message.stamp_s)
                self._newest, self._received_s = message, received_s
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
        if self._newest is not None:
            self._newest, self._commanded_s = None, -math.inf
            self._jog.release()

    def next(self, measured_rad: Joints, now_s: float) -> Joints | None:
        """Position to command now; None between command periods, and without a message in the last 0.1 s."""
        if self._newest is None or not 0.0 <= now_s - self._received_s <= FOLLOWED_S:
            self.release()
            return None
        since_s = now_s - self._commanded_s
        if since_s < EARLY * self._period_s:
            return None
        self._commanded_s = now_s
        dt_s = self._period_s if math.isinf(since_s) else min(since_s, 2.0 * self._period_s)
        newest = self._newest
        speed_rad_s = (
            self._of_joints(newest) if isinstance(newest, JointJog) else self._of(newest, measured_rad)
        )
        return self._jog.next(speed_rad_s / self._limit_rad_s, measured_rad, dt_s)

    def _of_joints(self, message: JointJog) -> Joints:
        speed_rad_s = np.zeros(len(self._robot.names))
        for name, value in zip(message.names, message.velocity_rad_s, strict=True):
            speed_rad_s[self._robot.names.index(name)] = value
        return speed_rad_s

    def _of(self, message: Twist, measured_rad: Joints) -> Joints:
        """Joint speeds that move the tool by this twist, by damped least squares."""
        if self._jacobian is None:
            self._jacobian = tool_jacobian(self._robot)
        jacobian = self._jacobian(measured_rad)
        twist = np.concatenate([message.linear_m_s, message.angular_rad_s])
        speed_rad_s = jacobian.T @ np.linalg.solve(jacobian @ jacobian.T + DAMPING**2 * np.eye(6), twist)
        over = float(np.abs(speed_rad_s / self._limit_rad_s).max())
        slowed: Joints = speed_rad_s / max(1.0, over)
        return slowed

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
            self._jacobian = self._jacobian or tool_jacobian(self._robot)
        except ConfigError as error:
            return f"{str(error).rstrip('.')}, or send teleop/joint_jog"
        return ""
