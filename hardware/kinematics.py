"""Forward kinematics and the Jacobian of an arm from its description, in NumPy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy import ndarray

from hardware.description import RobotDescription
from robo_rl.core.errors import ConfigError
from robo_rl.core.shapes import Float, Int64

Forward = Callable[[Float[ndarray, " j"]], Float[ndarray, "k 3"]]
Jacobian = Callable[[Float[ndarray, " j"]], Float[ndarray, "6 j"]]
ToolPose = Callable[[Float[ndarray, " j"]], tuple[Float[ndarray, " 3"], Float[ndarray, "3 3"]]]


@dataclass(frozen=True, slots=True)
class _Chain:
    """Joints of an arm: unit axes and origins, in the frame of the joint before; the tool in the last.

    places: (n,) of these joints in the description; a gripper is not among them.
    """

    axes: Float[ndarray, "j 3"]
    offsets: Float[ndarray, "j 3"]
    tool: Float[ndarray, " 3"]
    skews: Float[ndarray, "j 3 3"]
    places: Int64[ndarray, " n"]

    @staticmethod
    def of(robot: RobotDescription) -> _Chain:
        """The chain of a description. Raises ConfigError for one without axes."""
        places = np.flatnonzero(~robot.is_gripper)
        joints = [robot.joints[i] for i in places]
        if any(joint.axis is None or joint.offset_m is None for joint in joints):
            raise ConfigError(
                f"Robot '{robot.name}' has no kinematics: give axis and offset_m of every joint."
            )
        axes = np.array([joint.axis for joint in joints], dtype=np.float64)
        axes /= np.linalg.norm(axes, axis=1, keepdims=True)
        offsets = np.array([joint.offset_m for joint in joints], dtype=np.float64)
        tool = np.zeros(3) if robot.tool_m is None else np.asarray(robot.tool_m, dtype=np.float64)
        return _Chain(axes, offsets, tool, np.stack([_skew(axis) for axis in axes]), places)

    def turns(self, position_rad: Float[ndarray, " j"]) -> Float[ndarray, "j 3 3"]:
        """Rotation of each joint in the frame of the one before, by Rodrigues' formula."""
        angles = position_rad[self.places]
        sin, cos = np.sin(angles)[:, None, None], np.cos(angles)[:, None, None]
        turned: Float[ndarray, "j 3 3"] = (
            np.eye(3) + sin * self.skews + (1.0 - cos) * (self.skews @ self.skews)
        )
        return turned


def forward_kinematics(robot: RobotDescription) -> Forward:
    """Function that maps joint positions (j,) [rad] to points (n, 3) [m] in the base frame.

    The points are the origins of the arm's joints 2 to n, then the tool. Joint i rotates by its angle about
    its axis; its origin is at its offset in the frame of joint i-1. Raises ConfigError for a description
    without axes.
    """
    chain = _Chain.of(robot)
    offsets, tool = chain.offsets, chain.tool

    def fk(position_rad: Float[ndarray, " j"]) -> Float[ndarray, "n 3"]:
        turns = chain.turns(position_rad)
        points = np.empty((len(offsets), 3))
        place, turn = offsets[0], turns[0]
        for i in range(1, len(offsets)):
            place = points[i - 1] = place + turn @ offsets[i]
            turn = turn @ turns[i]
        points[-1] = place + turn @ tool
        return points

    return fk


def tool_pose(robot: RobotDescription) -> ToolPose:
    """Function that maps joint positions (j,) [rad] to the tool's position (3,) [m] and rotation (3, 3).

    Both are in the base frame; the rotation is from the frame of the last joint. Raises ConfigError for a
    description without axes.
    """
    chain = _Chain.of(robot)

    def pose(position_rad: Float[ndarray, " j"]) -> tuple[Float[ndarray, " 3"], Float[ndarray, "3 3"]]:
        place, turn = np.zeros(3), np.eye(3)
        for offset, local in zip(chain.offsets, chain.turns(position_rad), strict=True):
            place, turn = place + turn @ offset, turn @ local
        return place + turn @ chain.tool, turn

    return pose


def _skew(axis: Float[ndarray, " 3"]) -> Float[ndarray, "3 3"]:
    x, y, z = axis
    return np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])


def tool_jacobian(robot: RobotDescription) -> Jacobian:
    """Function that maps joint positions (j,) [rad] to the Jacobian (6, j) of the tool in the base frame.

    Rows: linear velocity [m/s], then angular velocity [rad/s], per joint speed [rad/s]. The column of a
    gripper is zero. Raises ConfigError for a description without axes.
    """
    chain = _Chain.of(robot)

    def jacobian(position_rad: Float[ndarray, " j"]) -> Float[ndarray, "6 j"]:
        turns, axes, origins = chain.turns(position_rad), [], []
        place, turn = np.zeros(3), np.eye(3)
        for offset, axis, local in zip(chain.offsets, chain.axes, turns, strict=True):
            place = place + turn @ offset
            axes.append(turn @ axis)
            origins.append(place)
            turn = turn @ local
        tool, angular = place + turn @ chain.tool, np.array(axes)
        linear = np.cross(angular, tool - np.array(origins))
        columns = np.zeros((6, len(position_rad)))
        columns[:, chain.places] = np.concatenate([linear.T, angular.T])
        return columns

    return jacobian
