"""Services of nodes without ROS beside another RMW, such as Fast DDS, whose requests they do not understand.

Here its endpoints are those of CycloneDDS without the ids that rmw_cyclonedds announces. The same with a real
RMW: test_ros_mixed.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("cyclonedds", reason="cyclonedds is not installed: pip install 'robo-rl[dds]'")

from cyclonedds.pub import DataWriter
from cyclonedds.qos import Qos
from cyclonedds.sub import DataReader
from cyclonedds.topic import Topic

from hardware.bus.dds import bus as dds_bus
from hardware.bus.dds.bus import DdsBus
from hardware.bus.dds.service import REPLY, REQUEST
from hardware.bus.dds.types import PLAIN, endpoint_qos
from robo_rl.core.errors import BusError

SOON_S = 10.0


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def node(domain: int, said: list[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[DdsBus]:
    """A node whose warnings are in `said`, without delay."""
    monkeypatch.setattr(dds_bus, "CHECK_S", 0.0)
    bus = DdsBus("tester", warn=said.append)
    yield bus
    bus.close()


def endpoints(participant: Any, sends: str, receives: str) -> tuple[Any, Any]:
    """Writer and reader of a Trigger service without ids. sends: prefix and suffix, such as "rq Request"."""
    topics = {"rq Request": REQUEST, "rr Reply": REPLY}
    qos = endpoint_qos(True, False, 10, "typehash=RIHS01_0;")
    made = [
        Topic(participant, "/tester/arm".join(words.split()), topics[words], Qos(PLAIN))
        for words in (sends, receives)
    ]
    return DataWriter(participant, made[0], qos), DataReader(participant, made[1], qos)


def test_client_of_another_rmw_is_reported_once(node: DdsBus, said: list[str]) -> None:
    node.service("~/arm", lambda: (True, ""))
    client = endpoints(node._participant, "rq Request", "rr Reply")
    late_s = node.now() + SOON_S
    node.spin(lambda: bool(said) or node.now() > late_s)
    late_s = node.now() + 0.1
    node.spin(lambda: node.now() > late_s)
    assert said == [
        "A client of '/tester/arm' uses another RMW than rmw_cyclonedds_cpp, such as Fast DDS, and gets no "
        "response. Use `robo-rl call /tester/arm bus=dds`, or set "
        "RMW_IMPLEMENTATION=rmw_cyclonedds_cpp there."
    ]
    del client


def test_known_clients_are_not_reported(node: DdsBus, said: list[str]) -> None:
    node.service("~/arm", lambda: (True, ""))
    other = DdsBus("other")
    with pytest.raises(BusError, match="did not respond"):  # the server is not spinning
        other.call("tester/arm", 0.5)
    late_s = node.now() + 0.2
    node.spin(lambda: node.now() > late_s)
    assert said == []
    other.close()


def test_server_of_another_rmw_gets_no_request(node: DdsBus) -> None:
    """It could execute the request, and the client would not learn of it."""
    server = endpoints(node._participant, "rr Reply", "rq Request")
    with pytest.raises(
        BusError, match=r"'/tester/arm' belongs to a node whose RMW is not rmw_cyclonedds_cpp"
    ):
        node.call("~/arm", 0.3)
    assert not server[1].take(1)
