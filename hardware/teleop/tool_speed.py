"""Joint speeds that move the tool by a twist: damped least squares over the arm's own kinematics.

With J the Jacobian whose angular rows are weighted by `ANGULAR_M`, u, s, v its singular values and vectors:

    speed = sum_i v_i s_i / (s_i^2 + d_i^2) (u_i . twist)
    d_i^2 = D^2 (1 - (s_i / E)^2) where s_i < E, else 0

Only directions that the arm is losing are damped (Chiaverini 1997, "Singularity-robust task-priority
redundancy resolution"), so that elsewhere the tool follows exactly, and near a singular position the speed
in the lost direction falls to zero, at most twist / (2 D).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy import ndarray

from hardware.description import RobotDescription
from hardware.kinematics import tool_jacobian
from hardware.safety.limits import stopping_speed
from robo_rl.core.shapes import Bool, Float

ANGULAR_M = 0.2  # a rotation of 1 rad counts as much as 0.2 m
SINGULAR_M = 0.03  # E: singular value below which a direction is damped
DAMPING_M = 0.03  # D
Joints = Float[ndarray, " j"]


@dataclass(frozen=True, slots=True)
class ToolMotion:
    """Speeds of the joints, and the share of the twist that they leave undone, 0 to 1."""

    speed_rad_s: Joints
    slowed: float


class ToolSpeed:
    """Joint speeds for a twist of the tool, within the joints' speeds and the ends of their range.

    A joint that nears an end of its range is held to the speed at which it can still stop there, and the
    others make up for it as far as they can. Then all speeds are scaled down together, so that the tool
    keeps its direction. Raises ConfigError for a description without axes.
    """

    def __init__(self, robot: RobotDescription) -> None:
        self._jacobian = tool_jacobian(robot)
        self._low_rad, self._high_rad = robot.column("low_rad"), robot.column("high_rad")
        self._most_rad_s = robot.column("velocity_rad_s")
        self._acceleration_rad_s2 = robot.column("acceleration_rad_s2")
        self._moves = ~robot.is_gripper

    def of(
        self,
        twist: Float[ndarray, " 6"],
        position_rad: Joints,
        dt_s: float,
        driven: Bool[ndarray, " j"] | None = None,
    ) -> ToolMotion:
        """Speeds for a twist [m/s, rad/s] in the base frame, from a position, for a step of dt_s.

        driven: joints that may move; None: all of the arm.
        """
        weights = np.array([1.0, 1.0, 1.0, ANGULAR_M, ANGULAR_M, ANGULAR_M])
        moves = self._moves if driven is None else self._moves & driven
        jacobian, wanted = weights[:, None] * self._jacobian(position_rad) * moves, weights * twist
        length = float(wanted @ wanted)
        if length < 1e-18:
            return ToolMotion(np.zeros_like(position_rad), 0.0)
        rooms = np.array((self._high_rad - position_rad, position_rad - self._low_rad))
        up, down = stopping_speed(rooms, self._acceleration_rad_s2, dt_s)
        speed = self._solve(jacobian, wanted)
        within = wanted / max(1.0, float(np.abs(speed / self._most_rad_s).max()))
        free, speed = moves.copy(), self._solve(jacobian, within)
        for _ in range(len(speed)):
            beyond = np.where(free, np.maximum(speed - up, -down - speed), 0.0)
            worst = int(beyond.argmax())
            if beyond[worst] <= 1e-9:
                break
            free[worst] = False
            speed[worst] = min(max(speed[worst], -down[worst]), up[worst])
            held = np.where(free, 0.0, speed)
            speed = held + self._solve(jacobian * free, within - jacobian @ held)
        speed = speed / max(1.0, float(np.abs(speed / self._most_rad_s).max()))
        done = float((jacobian @ speed) @ wanted) / length
        return ToolMotion(speed, 1.0 - min(max(done, 0.0), 1.0))

    def _solve(self, jacobian: Float[ndarray, "6 j"], twist: Float[ndarray, " 6"]) -> Joints:
        left, values, right = np.linalg.svd(jacobian, full_matrices=False)
        small = np.clip(1.0 - (values / SINGULAR_M) ** 2, 0.0, 1.0)
        gains = values / (values**2 + DAMPING_M**2 * small + 1e-12)
        speed: Joints = right.T @ (gains * (left.T @ twist))
        return speed
