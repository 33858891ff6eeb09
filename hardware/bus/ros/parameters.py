"""Parameters of a node on rclpy: values that ROS gives it, and read-only ones that show its settings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hardware.bus.parameters import KINDS, Parameter

ROS_OWN = ("use_sim_time", "start_type_description_service", "qos_overrides")  # rclpy itself declares these
EMPTY_LIST = (
    "ROS refuses a parameter with an empty list. Write null instead, or leave the parameter out. Check the "
    "arguments after --ros-args, and the parameter files."
)


def given(node: Any) -> dict[str, Any]:
    """Values from the command line and its parameter files, without those of ROS itself.

    The node has to declare its overrides when it is made; they are undeclared here.
    """
    found = {
        name: each.value
        for name, each in node.get_parameters_by_prefix("").items()
        if name.split(".")[0] not in ROS_OWN
    }
    for name in found:
        node.undeclare_parameter(name)
    return found


def show(node: Any, parameters: Sequence[Parameter]) -> None:
    """Declare the parameters with these values, whatever was given for them."""
    from rcl_interfaces.msg import ParameterDescriptor

    for each in parameters:
        # Without a value, and without dynamic_typing, a parameter would empty each response that includes it.
        unset = each.value is None or each.value == []  # rclpy takes an empty list for bytes
        descriptor = ParameterDescriptor(
            description=each.description,
            additional_constraints=each.constraints,
            read_only=True,
            dynamic_typing=unset,
        )
        node.declare_parameter(each.name, None if unset else each.value, descriptor, ignore_override=True)
        descriptor.type = KINDS[each.kind]  # rclpy keeps this object, and takes the type from the value
