"""Parameters of a node on rclpy: values that ROS gives it, and read-only ones that show its settings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hardware.bus.parameters import KINDS, Parameter

ROS_OWN = ("use_sim_time", "start_type_description_service", "qos_overrides")  # rclpy itself declares these


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
    from rclpy.parameter import Parameter as RosParameter

    for each in parameters:
        descriptor = ParameterDescriptor(
            description=each.description, additional_constraints=each.constraints, read_only=True
        )
        # A type instead of a value leaves the parameter without one; rclpy takes an empty list for bytes.
        unset = each.value is None or each.value == []
        value = RosParameter.Type(KINDS[each.kind]) if unset else each.value
        node.declare_parameter(each.name, value, descriptor, ignore_override=True)
