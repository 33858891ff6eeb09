"""Reading of `command/safe` by the nodes that move an arm."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy import ndarray

from hardware.messages import JointTrajectory
from robo_rl.core.errors import DriverError
from robo_rl.core.shapes import Float


def last_waypoint(message: JointTrajectory, names: Sequence[str]) -> Float[ndarray, " j"]:
    """The last waypoint, in the order of `names`. Raises DriverError for one that an arm cannot follow."""
    if missing := [name for name in names if name not in message.names]:
        raise DriverError(f"command/safe has no joint {', '.join(missing)}. Use this robot's description.")
    if len(message.position_rad) == 0:
        raise DriverError("command/safe has no waypoint. To stop the arm, call the filter's ~/stop.")
    position_rad: Float[ndarray, " j"] = np.asarray(message.position_rad[-1], dtype=np.float64)[
        [message.names.index(name) for name in names]
    ]
    if not np.isfinite(position_rad).all():
        raise DriverError(f"command/safe is not finite: {position_rad.tolist()}.")
    return position_rad
