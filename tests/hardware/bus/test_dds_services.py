"""Services over real DDS: answers across processes, missing ones, and clients that are discovered late."""

from __future__ import annotations

import subprocess
import time
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cyclonedds", reason="cyclonedds is not installed: pip install 'robo-rl[dds]'")

from cyclonedds.pub import DataWriter
from cyclonedds.sub import DataReader
from cyclonedds.topic import Topic

from hardware.bus.dds.bus import DdsBus
from hardware.bus.dds.service import REPLY, REQUEST, decode_reply, encode_request
from hardware.bus.dds.types import endpoint_qos
from robo_rl.core.errors import BusError
from tests.hardware.bus.dds_nodes import SOON_S, wait_for


def test_services_answer_across_processes(echo: subprocess.Popen[str], node: DdsBus) -> None:
    """Success and failure with a message, three times over one client; then a service ends the node."""
    for _ in range(3):
        assert node.call("echo/refuse", SOON_S) == (False, "not now: ü")
    assert node.call("/lab/echo/stop", SOON_S) == (True, "leaving")
    assert echo.communicate(timeout=SOON_S)[0] == "closed\n"
    assert echo.returncode == 0


def test_missing_service_is_reported(node: DdsBus) -> None:
    with pytest.raises(
        BusError,
        match=r"The service '/lab/arm/start' was not found \(waited 0.2 s\)\. No services were found",
    ):
        node.call("arm/start", 0.2)


def test_unknown_service_error_names_the_nearest(echo: Any, node: DdsBus) -> None:
    """Another process offers two. A service that is only requested, here by this node, is not listed."""
    assert node.call("echo/refuse", SOON_S)
    with pytest.raises(BusError, match=r"The service '/lab/echo/stpo'.*Did you mean '/lab/echo/stop'\?"):
        node.call("echo/stpo", 0.2)
    with pytest.raises(BusError, match=r"Did you mean '/lab/echo/stop'\?"):
        node.call("/echo/stop", 0.2)
    with pytest.raises(BusError, match="Known services: /lab/echo/refuse, /lab/echo/stop"):
        node.call("xyz", 0.2)


class OneEyedClient:
    """Client of /lab/tester/arm that cannot receive answers before `open_eye`, as if its reader were
    discovered late.
    """

    def __init__(self, domain: int) -> None:
        self.bus = DdsBus("asker", "lab", domain, warn=lambda sentence: None)
        participant: Any = self.bus._participant
        self.id = "1.2.3.4.5.6.7.8.9.a.b.c.d.e.f.10"
        self.qos = endpoint_qos(True, False, 10, f"clientid={self.id};")
        self.writer: Any = DataWriter(
            participant, Topic(participant, "rq/lab/tester/armRequest", REQUEST), self.qos
        )
        self.reader: Any = None

    def ask(self) -> None:
        late_s = time.monotonic() + SOON_S
        while not self.writer.get_matched_subscriptions() and time.monotonic() < late_s:
            time.sleep(0.005)
        self.writer.write(REQUEST.of(encode_request(7, 1)))

    def open_eye(self) -> None:
        participant: Any = self.bus._participant
        self.reader = DataReader(participant, Topic(participant, "rr/lab/tester/armReply", REPLY), self.qos)

    def heard(self) -> list[tuple[bool, str]]:
        return [decode_reply(sample.cdr) for sample in self.reader.take(16)]

    def close(self) -> None:
        self.writer = self.reader = None
        self.bus.close()


@pytest.mark.parametrize("opens", [False, True], ids=["never hears", "hears late"])
def test_undiscovered_client_does_not_block_timers(domain: int, node: DdsBus, opens: bool) -> None:
    """Timers continue while the client's reader is not discovered; they once stood still for 0.1 s."""
    ticks_s: list[float] = []
    asked: list[float] = []
    node.service("~/arm", lambda: (asked.append(node.now()), (True, "armed"))[1])
    node.timer(0.005, lambda: ticks_s.append(node.now()))
    client = OneEyedClient(domain)
    try:
        client.ask()
        wait_for(node, lambda: bool(asked))
        if opens:
            client.open_eye()
        node.spin(lambda: node.now() > asked[0] + 0.3)
        since = [asked[0], *(at for at in ticks_s if asked[0] < at < asked[0] + 0.2)]
        assert max(np.diff(since)) < 0.08
        if opens:
            assert client.heard() == [(True, "armed")]
    finally:
        client.close()
