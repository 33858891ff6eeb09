"""A small arm and its messages, for tests of the filter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hardware.description import RobotDescription, parse_description
from hardware.messages import JointState, JointTrajectory

NAMES = ("a", "b", "c")
PERIOD_S = 0.02


def arm(**changes: Any) -> RobotDescription:
    """Three joints, 50 Hz: 2 rad/s, 20 rad/s^2, at most 0.2 rad from where it is measured; two links of 0.4
    m.
    """
    joint = {"low_rad": -1.0, "high_rad": 1.0, "velocity_rad_s": 2.0, "acceleration_rad_s2": 20.0}
    axes = {"a": [0, 0, 1], "b": [0, 1, 0], "c": [0, 1, 0]}
    joints = [{"name": n, **joint, "axis": axes[n], "offset_m": [0.0, 0.0, 0.4 * (n == "c")]} for n in NAMES]
    body = {"name": "small", "command_hz": 50, "state_hz": 50, "joints": joints, "tool_m": [0.0, 0.0, 0.4]}
    return parse_description(body | changes, "small")


def state(position: Any, names: Sequence[str] = NAMES) -> JointState:
    return JointState(0.0, tuple(names), np.asarray(position, dtype=np.float64))


def command(position: Any, number: int = 0, names: Sequence[str] = NAMES) -> JointTrajectory:
    """A sender's command of this number: its stamp is later than that of the number before."""
    rows = np.atleast_2d(np.asarray(position, dtype=np.float64))
    return JointTrajectory(1.0 + PERIOD_S * number, tuple(names), rows, np.array([PERIOD_S]))
