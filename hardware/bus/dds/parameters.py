"""Parameter services of a node without ROS, so that `ros2 param` shows its settings and does not wait for it.

All parameters are read-only. The types of requests and responses are built at the first request, because
most nodes never get one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from hardware.bus.dds.calls import register_service, request_and_response
from hardware.bus.dds.cdr import RosTypes
from hardware.bus.dds.service import Server, service_carriers
from hardware.bus.parameters import KINDS, READ_ONLY, Parameter

_FIELDS = {  # rcl_interfaces/msg/ParameterType -> field of ParameterValue
    1: "bool_value",
    2: "integer_value",
    3: "double_value",
    4: "string_value",
    7: "integer_array_value",
    8: "double_array_value",
    9: "string_array_value",
}
_NAMES, _PARAMETERS = "string[] names\n", "rcl_interfaces/Parameter[] parameters\n"
# service -> type, fields of its request and of its response
SERVICES = {
    "list_parameters": (
        "ListParameters",
        "string[] prefixes\nuint64 depth\n",
        "rcl_interfaces/ListParametersResult result\n",
    ),
    "describe_parameters": (
        "DescribeParameters",
        _NAMES,
        "rcl_interfaces/ParameterDescriptor[] descriptors\n",
    ),
    "get_parameters": ("GetParameters", _NAMES, "rcl_interfaces/ParameterValue[] values\n"),
    "get_parameter_types": ("GetParameterTypes", _NAMES, "uint8[] types\n"),
    "set_parameters": ("SetParameters", _PARAMETERS, "rcl_interfaces/SetParametersResult[] results\n"),
    "set_parameters_atomically": (
        "SetParametersAtomically",
        _PARAMETERS,
        "rcl_interfaces/SetParametersResult result\n",
    ),
}


def parameter_servers(
    participant: Any, ros: RosTypes, node: str, parameters: Sequence[Parameter]
) -> list[Server]:
    """Servers of the six parameter services. node: full name of the node."""
    table = ParameterTable(ros, parameters)
    return [
        Server(
            participant, f"{node}/{service}", partial(table.respond, service),
            *service_carriers(f"rcl_interfaces/srv/{kind}"),
        )
        for service, (kind, _, _) in SERVICES.items()
    ]  # fmt: skip


class ParameterTable:
    """The parameters of one node, and the responses to requests for them."""

    def __init__(self, ros: RosTypes, parameters: Sequence[Parameter]) -> None:
        self._ros, self._parameters = ros, {each.name: each for each in parameters}

    def respond(self, service: str, cdr: bytes) -> bytes:
        """CDR of the response to a request. Raises BusError for invalid bytes."""
        kind, request_text, response_text = SERVICES[service]
        ros_type = f"rcl_interfaces/srv/{kind}"
        register_service(self._ros, ros_type, request_text, response_text)
        request_type, response_type = request_and_response(ros_type).values()
        request = self._ros.parse(cdr, request_type)
        fields = self._answers()[service](request)
        response = self._ros.new(
            response_type, client_guid=request.client_guid, sequence=request.sequence, **fields
        )
        reply = bytes(self._ros.store.serialize_cdr(response, response_type, little_endian=True))
        return reply + bytes(-len(reply) % 4)

    def _answers(self) -> dict[str, Callable[[Any], dict[str, Any]]]:
        import numpy as np

        return {
            "list_parameters": lambda request: {"result": self._list(request.prefixes)},
            "describe_parameters": lambda r: {"descriptors": list(map(self._descriptor, self._named(r)))},
            "get_parameters": lambda r: {"values": list(map(self._value, self._named(r)))},
            "get_parameter_types": lambda r: {"types": np.array(list(map(_kind, self._named(r))), np.uint8)},
            "set_parameters": lambda r: {"results": [self._refusal(each.name) for each in r.parameters]},
            "set_parameters_atomically": lambda r: {
                "result": self._refusal(", ".join(each.name for each in r.parameters))
            },
        }

    def _list(self, prefixes: Sequence[str]) -> Any:
        names = [
            name
            for name in self._parameters
            if not prefixes or any(name == prefix or name.startswith(f"{prefix}.") for prefix in prefixes)
        ]
        return self._ros.new("rcl_interfaces/msg/ListParametersResult", names=names)

    def _named(self, request: Any) -> list[Parameter]:
        """The parameters of a request; none where one is unknown, as rclpy answers."""
        if not all(name in self._parameters for name in request.names):
            return []
        return [self._parameters[name] for name in request.names]

    def _descriptor(self, each: Parameter) -> Any:
        return self._ros.new(
            "rcl_interfaces/msg/ParameterDescriptor",
            name=each.name,
            type=KINDS[each.kind],
            description=each.description,
            additional_constraints=each.constraints,
            read_only=True,
        )

    def _value(self, each: Parameter) -> Any:
        import numpy as np

        number = _kind(each)
        found = {_FIELDS[number]: each.value} if number else {}
        if number in (7, 8):
            found = {_FIELDS[number]: np.array(each.value, np.int64 if number == 7 else np.float64)}
        return self._ros.new("rcl_interfaces/msg/ParameterValue", type=number, **found)

    def _refusal(self, name: str) -> Any:
        known = name in self._parameters
        reason = READ_ONLY if known else f"this node has no setting '{name}'"
        return self._ros.new("rcl_interfaces/msg/SetParametersResult", successful=False, reason=reason)


def _kind(each: Parameter) -> int:
    """rcl_interfaces/msg/ParameterType of the value; 0 where there is none."""
    return 0 if each.value is None else KINDS[each.kind]
