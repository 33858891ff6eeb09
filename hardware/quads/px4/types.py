"""Message types of PX4's uXRCE-DDS bridge (package px4_msgs of PX4 1.15 and later) that the driver uses.

The stores of rosbags do not have px4_msgs, so the definitions, without constants, are given here.
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
    # The first fields, which all versions have in common. The other fields differ and are not read.
    STATUS: (
        "uint64 timestamp\nuint64 armed_time\nuint64 takeoff_time\nuint8 arming_state\nuint8 "
        "latest_arming_reason\nuint8 latest_disarming_reason\nuint64 nav_state_timestamp\nuint8 "
        "nav_state_user_intention\nuint8 nav_state\n"
    ),
}
# Suffixes of the topic: PX4 1.16 and later append the version of the message.
STATUS_VERSIONS = ("", "_v1", "_v2", "_v3", "_v4")
# Shortest vehicle_status of PX4 1.15 and later, in bytes. That of 1.14 has 71, and its OffboardControlMode
# and VehicleCommand have other fields: a 1.14 would read our commands wrongly.
_STATUS_BYTES = 80
_STATUS_FIELDS = struct.Struct("<QQQBBB5xQBB")  # those of DEFINITIONS[STATUS]


@dataclass(frozen=True, slots=True)
class VehicleStatus:
    """Arming state and mode of the craft, as PX4's numbers."""

    arming_state: int
    nav_state: int
    outdated: bool  # True if the autopilot has PX4 1.14 or earlier, which reads commands differently


def register(store: Any) -> None:
    """Add these types to a store of rosbags."""
    from rosbags.typesys import get_types_from_msg

    for name, text in DEFINITIONS.items():
        if name not in store.fielddefs:
            store.register(get_types_from_msg(text, name))


def read_status(cdr: bytes) -> VehicleStatus | None:
    """Status from CDR bytes; None if they are too short or not little-endian."""
    if len(cdr) < 4 + _STATUS_FIELDS.size or cdr[1] != 1:
        return None
    values = _STATUS_FIELDS.unpack_from(cdr, 4)
    return VehicleStatus(values[3], values[8], outdated=len(cdr) < 4 + _STATUS_BYTES)
