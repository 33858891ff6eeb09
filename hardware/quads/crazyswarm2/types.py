"""Types of messages and services of crazyswarm2's server that the driver uses.

The stores of rosbags do not have the package crazyflie_interfaces, so its definitions are given here.
"""

from __future__ import annotations

from typing import Any

from hardware.bus.dds.cdr import RosTypes
from robo_rl.core.errors import BusError

COMMAND, POSE = "geometry_msgs/msg/Twist", "geometry_msgs/msg/PoseStamped"
LOG, STATUS = "crazyflie_interfaces/msg/LogDataGeneric", "crazyflie_interfaces/msg/Status"
OLDER_STATUS = "crazyflie_interfaces/msg/StatusWithoutLatency"
_STATUS = (
    "std_msgs/Header header\nuint16 supervisor_info\nfloat32 battery_voltage\nuint8 pm_state\nuint8 rssi\n"
    "uint32 num_rx_broadcast\nuint32 num_tx_broadcast\nuint32 num_rx_unicast\nuint32 num_tx_unicast\n"
)
DEFINITIONS = {
    LOG: "std_msgs/Header header\nuint32 timestamp\nfloat32[] values\n",
    STATUS: f"{_STATUS}uint16 latency_unicast\n",
    OLDER_STATUS: _STATUS,
}
ARM, LAND = "crazyflie_interfaces/srv/Arm", "crazyflie_interfaces/srv/Land"
NOTIFY = "crazyflie_interfaces/srv/NotifySetpointsStop"
SET_PARAMETERS = "rcl_interfaces/srv/SetParameters"
INTEGER = 2  # rcl_interfaces/msg/ParameterType
SERVICES = {  # request, and response if it has fields
    ARM: ("bool arm\n",),
    LAND: ("uint8 group_mask\nfloat32 height\nbuiltin_interfaces/Duration duration\n",),
    NOTIFY: ("uint8 group_mask\nuint32 remain_valid_millisecs\n",),
    SET_PARAMETERS: (
        "rcl_interfaces/Parameter[] parameters\n",
        "rcl_interfaces/SetParametersResult[] results\n",
    ),
}


def register(ros: RosTypes) -> None:
    """Add these types to a store of message types."""
    from rosbags.typesys import get_types_from_msg

    from hardware.bus.dds.calls import register_service  # needs cyclonedds, which is optional

    for name, text in DEFINITIONS.items():
        if name not in ros.store.fielddefs:
            ros.store.register(get_types_from_msg(text, name))
    for name, parts in SERVICES.items():
        register_service(ros, name, *parts)


def read_status(ros: RosTypes, cdr: bytes) -> Any:
    """A Status of the current or the older definition. Raises BusError for bytes of another type."""
    try:
        return ros.parse(cdr, STATUS)
    except BusError:
        return ros.parse(cdr, OLDER_STATUS)
