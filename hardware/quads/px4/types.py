"""Messages of PX4's uXRCE-DDS bridge that we send and read: package px4_msgs, as PX4 1.14 to 1.16 have them.

`px4_msgs` is in no store of message types and needs no compiler here: its definitions, without constants,
stand below.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

ODOMETRY, STATUS = "px4_msgs/msg/VehicleOdometry", "px4_msgs/msg/VehicleStatus"
OFFBOARD_MODE, RATES = "px4_msgs/msg/OffboardControlMode", "px4_msgs/msg/VehicleRatesSetpoint"
COMMAND = "px4_msgs/msg/VehicleCommand"
DEFINITIONS = {
    OFFBOARD_MODE: (
        "uint64 timestamp\nbool position\nbool velocity\nbool acceleration\nbool attitude\nbool body_rate\n"
        "bool thrust_and_torque\nbool direct_actuator\n"
    ),
    RATES: (
        "uint64 timestamp\nfloat32 roll\nfloat32 pitch\nfloat32 yaw\nfloat32[3] thrust_body\nbool "
        "reset_integral\n"
    ),
    COMMAND: (
        "uint64 timestamp\nfloat32 param1\nfloat32 param2\nfloat32 param3\nfloat32 param4\nfloat64 param5\n"
        "float64 param6\nfloat32 param7\nuint32 command\nuint8 target_system\nuint8 target_component\n"
        "uint8 source_system\nuint16 source_component\nuint8 confirmation\nbool from_external\n"
    ),
    ODOMETRY: (
        "uint64 timestamp\nuint64 timestamp_sample\nuint8 pose_frame\nfloat32[3] position\nfloat32[4] q\n"
        "uint8 velocity_frame\nfloat32[3] velocity\nfloat32[3] angular_velocity\nfloat32[3] "
        "position_variance\nfloat32[3] orientation_variance\nfloat32[3] velocity_variance\nuint8 "
        "reset_counter\nint8 quality\n"
    ),
    # What every version of it begins with; the rest differs from release to release, and is not read.
    STATUS: (
        "uint64 timestamp\nuint64 armed_time\nuint64 takeoff_time\nuint8 arming_state\nuint8 "
        "latest_arming_reason\nuint8 latest_disarming_reason\nuint64 nav_state_timestamp\nuint8 "
        "nav_state_user_intention\nuint8 nav_state\n"
    ),
}
STATUS_VERSIONS = (
    "",
    "_v1",
    "_v2",
    "_v3",
    "_v4",
)  # PX4 1.16 and later name the version of a message in its topic
_BEGINS = struct.Struct("<QQQBBB5xQBB")  # as STATUS does


@dataclass(frozen=True, slots=True)
class VehicleStatus:
    """Is it armed, and which mode flies it, by PX4's number."""

    arming_state: int
    nav_state: int


def register(store: Any) -> None:
    """Let rosbags' store know these types."""
    from rosbags.typesys import get_types_from_msg

    for name, text in DEFINITIONS.items():
        if name not in store.fielddefs:
            store.register(get_types_from_msg(text, name))


def read_status(cdr: bytes) -> VehicleStatus | None:
    """The beginning of little-endian CDR bytes with their header of four; None for what is too short."""
    if len(cdr) < 4 + _BEGINS.size or cdr[1] != 1:
        return None
    values = _BEGINS.unpack_from(cdr, 4)
    return VehicleStatus(values[3], values[8])
