"""Messages and services of crazyswarm2's server that we use: package crazyflie_interfaces, and those it
borrows.

`crazyflie_interfaces` is in no store of message types and needs no compiler here: what is used of it stands
below.
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
SERVICES = {  # request, and reply where it has fields
    ARM: ("bool arm\n",),
    LAND: ("uint8 group_mask\nfloat32 height\nbuiltin_interfaces/Duration duration\n",),
    NOTIFY: ("uint8 group_mask\nuint32 remain_valid_millisecs\n",),
    SET_PARAMETERS: (
        "rcl_interfaces/Parameter[] parameters\n",
        "rcl_interfaces/SetParametersResult[] results\n",
    ),
}


def register(ros: RosTypes) -> None:
    """Let the store know these types."""
    from rosbags.typesys import get_types_from_msg

    from hardware.bus.dds.calls import register_service  # needs cyclonedds, which a robot may lack

    for name, text in DEFINITIONS.items():
        if name not in ros.store.fielddefs:
            ros.store.register(get_types_from_msg(text, name))
    for name, halves in SERVICES.items():
        register_service(ros, name, *halves)


def read_status(ros: RosTypes, cdr: bytes) -> Any:
    """A Status of today, or of before it told the latency. Raises BusError for what is neither."""
    try:
        return ros.parse(cdr, STATUS)
    except BusError:
        return ros.parse(cdr, OLDER_STATUS)
