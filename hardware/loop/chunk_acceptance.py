"""Bounds on chunks of waypoints, so that one message cannot fill the memory or stop the command loop."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hardware.messages import JointTrajectory

MOST_WAYPOINTS = 1000
HORIZON_S = 60.0  # time of the last waypoint, after the state that the policy observed


def horizon_fault(waypoints: int, horizon_s: float) -> str:
    """Fault of a chunk's length, without a final full stop; empty for an accepted length."""
    if waypoints > MOST_WAYPOINTS:
        return f"it has {waypoints} waypoints, expected at most {MOST_WAYPOINTS}"
    if not 0.0 < horizon_s <= HORIZON_S:
        return (
            f"its last waypoint is at {horizon_s:.6g} s, expected a time above 0 s, at most {HORIZON_S:g} s"
        )
    return ""


def chunk_fault(message: JointTrajectory, names: Sequence[str] | None) -> str:
    """Why a chunk is refused, without a final full stop; empty for an accepted chunk.

    names: joints of the robot, in any order; None: not compared.
    """
    count = len(message.times_s)
    if count == 0:
        return "it has no waypoint"
    if fault := horizon_fault(count, float(message.times_s[-1])):
        return fault
    if message.position_rad.shape != (count, len(message.names)):
        return (
            f"its positions have shape {message.position_rad.shape}, expected {count} waypoints of "
            f"{len(message.names)} joints"
        )
    if not (np.isfinite(message.position_rad).all() and np.isfinite(message.times_s).all()):
        return "it holds a number that is not finite"
    if message.times_s[0] <= 0.0 or (np.diff(message.times_s) <= 0.0).any():
        return "the times of its waypoints do not increase from above 0 s"
    if names is not None and sorted(message.names) != sorted(names):
        named = ", ".join(message.names[:10]) or "no joints"
        return f"it is for {named}, expected {', '.join(names)}"
    return ""
