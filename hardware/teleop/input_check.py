"""Check of a device's input before anything is made of it: finite, of the right size, within bounds."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy import ndarray

from hardware.description import RobotDescription
from hardware.teleop.device import HandPose, OperatorInput
from robo_rl.core.shapes import Float

UNIT_SLACK = 0.05  # largest difference of a quaternion's norm from 1
FAR_RAD = 100.0  # a joint further away than this is a fault of the leader
FAR_M = 100.0  # a hand further away than this is a fault of its tracking


def checked(operator: OperatorInput, robot: RobotDescription) -> tuple[OperatorInput, str]:
    """The input, and "" where it can be used; else a released one, and what is wrong as a clause.

    Positions may be those of all joints, or of all but the gripper. Values beyond -1 ... 1 are
    clipped. A request to the recorder is kept in either case.
    """
    fault = _fault(operator, {len(robot.names), int((~robot.is_gripper).sum())})
    request = str(operator.recorder_request or "")
    if fault:
        return OperatorInput(False, recorder_request=request), fault
    gripper = operator.gripper
    return replace(
        operator,
        held=bool(operator.held),
        rates=_clipped(operator.rates),
        position_rad=_array(operator.position_rad),
        twist=_clipped(operator.twist),
        pose=None if operator.pose is None else _unit(operator.pose),
        gripper=None if gripper is None else min(max(float(gripper), 0.0), 1.0),
        gripper_toggle=bool(operator.gripper_toggle),
        recorder_request=request,
    ), ""


def _fault(operator: OperatorInput, joints: set[int]) -> str:
    if sum(v is not None for v in (operator.rates, operator.position_rad, operator.twist, operator.pose)) > 1:
        return "it gives two of rates, positions, a twist and a pose at once"
    pose = operator.pose
    given: tuple[tuple[str, Any, set[int]], ...] = (
        ("its list of rates", operator.rates, set()),
        ("its list of positions", operator.position_rad, joints),
        ("its twist", operator.twist, {6}),
        ("its hand's position", None if pose is None else pose.position_m, {3}),
        ("its hand's quaternion", None if pose is None else pose.quat_wxyz, {4}),
    )
    for what, values, sizes in given:
        if values is not None and (fault := _array_fault(values, sizes)):
            return f"{what} {fault}"
    if operator.position_rad is not None and np.abs(operator.position_rad).max() > FAR_RAD:
        return f"its list of positions holds one beyond {FAR_RAD:g} rad"
    if pose is not None:
        if np.abs(np.asarray(pose.position_m)).max() > FAR_M:
            return f"its hand is more than {FAR_M:g} m away"
        if abs(float(np.linalg.norm(pose.quat_wxyz)) - 1.0) > UNIT_SLACK:
            return "its hand's quaternion has not the length 1"
    gripper = operator.gripper
    if gripper is not None and not (isinstance(gripper, int | float) and math.isfinite(gripper)):
        return "its opening of the gripper is not a finite number"
    return ""


def _array_fault(values: Any, sizes: set[int]) -> str:
    """What is wrong with a list of numbers; sizes: the possible ones, empty for any."""
    try:
        numbers = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        return "holds something other than numbers"
    if numbers.ndim != 1 or (sizes and len(numbers) not in sizes):
        expected = " or ".join(map(str, sorted(sizes))) or "a list of"
        return f"has the shape {list(numbers.shape)}, expected {expected} numbers"
    return "" if np.isfinite(numbers).all() else "holds a value that is not finite"


def _array(values: Float[ndarray, " n"] | None) -> Float[ndarray, " n"] | None:
    return None if values is None else np.asarray(values, dtype=np.float64)


def _clipped(values: Float[ndarray, " n"] | None) -> Float[ndarray, " n"] | None:
    return None if values is None else np.clip(np.asarray(values, dtype=np.float64), -1.0, 1.0)


def _unit(pose: HandPose) -> HandPose:
    quat = np.asarray(pose.quat_wxyz, dtype=np.float64)
    return HandPose(np.asarray(pose.position_m, dtype=np.float64), quat / np.linalg.norm(quat))
