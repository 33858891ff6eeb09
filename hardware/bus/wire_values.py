"""Conversion of the parts that ROS messages share: times, headers, vectors, quaternions, arrays of numbers.

`new(type, **fields)` makes a ROS message; fields that are not given have their defaults.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy import ndarray

from robo_rl.core.errors import BusError
from robo_rl.core.flight.frames import wxyz_of, xyzw_of

New = Callable[..., Any]
NANO = 1_000_000_000


def split_time(time_s: float) -> dict[str, int]:
    """sec and nanosec of builtin_interfaces/Time or Duration, rounded to the nearest nanosecond.

    Raises BusError for a time that is not finite or not within 68 years of zero.
    """
    if not (math.isfinite(time_s) and -(2.0**31) <= time_s < 2.0**31 - 1):
        raise BusError(
            f"A time of {time_s} s cannot be sent: expected a finite time within 68 years of zero."
        )
    sec = math.floor(time_s)
    nanosec = round((time_s - sec) * NANO)  # the difference of the two is exact
    return {"sec": sec + 1, "nanosec": 0} if nanosec == NANO else {"sec": sec, "nanosec": nanosec}


def join_time(time: Any) -> float:
    """Seconds of a Time or Duration. Raises BusError for one that `split_time` cannot return."""
    return seconds(time.sec, time.nanosec)


def seconds(sec: int, nanosec: int) -> float:
    """Seconds of the two fields of a Time or Duration. Raises BusError as `join_time`."""
    time_s = float(sec + nanosec / NANO)
    if nanosec >= NANO or time_s >= 2**31 - 1:
        raise BusError(f"A time of {sec} s and {nanosec} ns is out of range; expected less than {NANO} ns.")
    return time_s


def header(new: New, stamp_s: float, frame_id: str = "") -> Any:
    """std_msgs/Header."""
    stamp = new("builtin_interfaces/msg/Time", **split_time(stamp_s))
    return new("std_msgs/msg/Header", stamp=stamp, frame_id=frame_id)


def floats(values: Any) -> ndarray:
    """Values as float64, the type of arrays in messages."""
    return np.asarray(values, dtype=np.float64)


def xyz(new: New, values: ndarray, kind: str = "Vector3") -> Any:
    """(3,) as a geometry_msgs/Vector3 or Point."""
    x, y, z = map(float, values)
    return new(f"geometry_msgs/msg/{kind}", x=x, y=y, z=z)


def vector(point: Any) -> ndarray:
    """(3,) of a Vector3 or Point."""
    return np.array([point.x, point.y, point.z])


def quaternion(new: New, wxyz: ndarray) -> Any:
    """geometry_msgs/Quaternion of [w, x, y, z]."""
    x, y, z, w = map(float, xyzw_of(wxyz))
    return new("geometry_msgs/msg/Quaternion", x=x, y=y, z=z, w=w)


def quat_wxyz(q: Any) -> ndarray:
    """[w, x, y, z] of a Quaternion."""
    return wxyz_of(np.array([q.x, q.y, q.z, q.w]))
