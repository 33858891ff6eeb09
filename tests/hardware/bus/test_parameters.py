"""Parameters of a node without ROS, by the services that `ros2 param` uses."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("cyclonedds", reason="cyclonedds is not installed: pip install 'robo-rl[dds]'")

from hardware.bus.dds.bus import DdsBus
from hardware.bus.dds.calls import ServiceClient, register_service
from hardware.bus.dds.cdr import RosTypes
from hardware.bus.dds.parameters import SERVICES, ParameterTable
from hardware.bus.dds.service import service_carriers
from hardware.bus.parameters import Parameter, ParameterBus
from robo_rl.core.errors import BusError

SHOWN = (
    Parameter("robot", "str", "sim_arm", "description of the robot"),
    Parameter("rate_hz", "float", 50.0, "rate of commands", "number >= 1"),
    Parameter("threads", "int", 2, "threads of the policy"),
    Parameter("arm", "bool", True, "arm at once"),
    Parameter("axes", "list[int]", [0, -1], "axis for each joint"),
    Parameter("goal_m", "list[float]", [0.5, 0.0], "goal"),
    Parameter("ground_m", "float", None, "height of the ground", "number or none"),
)


class Client:
    """The six services, called from another node, as AsyncParameterClient of rclpy does."""

    def __init__(self, domain: int, node: str) -> None:
        self.bus, self.ros = DdsBus("client", domain=domain), RosTypes("jazzy")
        self.calls: dict[str, ServiceClient] = {}
        for service, (kind, request, response) in SERVICES.items():
            ros_type = f"rcl_interfaces/srv/{kind}"
            register_service(self.ros, ros_type, request, response)
            self.calls[service] = ServiceClient(
                self.bus._participant, self.ros, f"{node}/{service}", ros_type, service_carriers(ros_type)
            )

    def call(self, service: str, **fields: Any) -> Any:
        late_s = time.monotonic() + 10.0
        while not self.calls[service].ready():
            assert time.monotonic() < late_s, f"{service} was not found"
            time.sleep(0.01)
        return self.calls[service].call(5.0, **fields)

    def close(self) -> None:
        for client in self.calls.values():
            client.close()
        self.bus.close()


@pytest.fixture
def client(domain: int) -> Iterator[Client]:
    """A client of a node `left/filter` that spins in a thread of its own."""
    bus, ended = DdsBus("filter", "left", domain=domain), threading.Event()
    assert isinstance(bus, ParameterBus)
    assert bus.given_parameters() == {}
    bus.show_parameters(SHOWN)
    thread = threading.Thread(target=bus.spin, args=(ended.is_set,))
    thread.start()
    made = Client(domain, "/left/filter")
    yield made
    made.close()
    ended.set()
    thread.join()
    bus.close()


def test_parameters_match_the_settings(client: Client) -> None:
    names = [each.name for each in SHOWN]
    assert client.call("list_parameters").result.names == names
    assert client.call("list_parameters", prefixes=["arm", "goal"]).result.names == ["arm"]
    values = client.call("get_parameters", names=names).values
    assert [value.type for value in values] == [4, 3, 2, 1, 7, 8, 0]
    assert values[0].string_value == "sim_arm"
    assert (values[1].double_value, values[2].integer_value, values[3].bool_value) == (50.0, 2, True)
    assert list(values[4].integer_array_value) == [0, -1]
    assert list(values[5].double_array_value) == [0.5, 0.0]
    assert list(client.call("get_parameter_types", names=names).types) == [4, 3, 2, 1, 7, 8, 0]
    described = client.call("describe_parameters", names=["rate_hz"]).descriptors[0]
    assert (described.description, described.additional_constraints) == ("rate of commands", "number >= 1")
    assert described.read_only


def test_unknown_names_and_changes_are_answered(client: Client) -> None:
    """Without an answer `ros2 param` waits for ever."""
    assert client.call("get_parameters", names=["robot", "rate"]).values == []
    assert client.call("describe_parameters", names=["rate"]).descriptors == []
    change = client.ros.new("rcl_interfaces/msg/Parameter", name="arm")
    other = client.ros.new("rcl_interfaces/msg/Parameter", name="rate")
    first, second = client.call("set_parameters", parameters=[change, other]).results
    assert (first.successful, second.successful) == (False, False)
    assert "restart the node" in first.reason
    assert "no setting 'rate'" in second.reason
    assert not client.call("set_parameters_atomically", parameters=[change]).result.successful


@pytest.mark.parametrize("cdr", [b"", b"\0\1\0\0", b"\0\1\0\0" + bytes(16) + b"\xff\xff\xff\x7f"])
def test_hostile_requests_are_refused(cdr: bytes) -> None:
    with pytest.raises(BusError):
        ParameterTable(RosTypes("jazzy"), SHOWN).respond("get_parameters", cdr)
