"""Nodes on the loopback receive nothing from other machines: their sockets, and a forged message."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("cyclonedds", reason="cyclonedds is not installed: pip install 'robo-rl[dds]'")

from hardware.bus.dds import loopback
from hardware.bus.dds.bus import DdsBus
from robo_rl.core.errors import BusError

ROOT = Path(__file__).resolve().parents[3]
NAMESPACES = ["unshare", "--user", "--map-root-user", "--net"]


def test_receiving_sockets_are_bound_to_the_loopback(domain: int) -> None:
    """Discovery and data sockets are on 0.0.0.0, bound to the device lo."""
    bus = DdsBus("node", domain=domain)
    devices = []
    for _, made in loopback.open_ports(domain):
        with made:
            devices.append(made.getsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, 16))
    bus.close()
    assert devices == [b"lo\0", b"lo\0"]


def test_sockets_of_another_dds_are_left_alone(domain: int) -> None:
    """Fast DDS of a node on rclpy in the same process: bound to the loopback, it is not heard."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.bind(("0.0.0.0", loopback.BASE + loopback.GAIN * domain + 100))
        bus = DdsBus("node", domain=domain)
        assert other.getsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, 16) == b""
        bus.close()


def test_refused_binding_is_an_error(domain: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A device that does not exist stands for a kernel before 5.7; no node starts open to the network."""
    monkeypatch.setattr(loopback, "DEVICE", b"nosuchdevice0")
    with pytest.raises(BusError, match=r"cannot be bound to the loopback .*ROBO_RL_INTERFACE=eth0"):
        DdsBus("node", domain=domain)
    monkeypatch.setattr(loopback, "DEVICE", b"lo")
    DdsBus("node", domain=domain).close()  # the refused domain is closed again


def test_domain_without_sockets_is_an_error() -> None:
    with pytest.raises(BusError, match="No receiving socket of DDS domain 101 was found"):
        loopback.confine(101)


def test_forged_network_message_is_not_received() -> None:
    """Two connected network namespaces. The same message sent on the loopback is received."""
    tried = subprocess.run([*NAMESPACES, "true"], capture_output=True, text=True)
    if tried.returncode != 0:
        pytest.skip(f"this kernel lets no user make network namespaces: {tried.stderr.strip()}")
    done = subprocess.run(
        [*NAMESPACES, sys.executable, "-m", "tests.hardware.bus.two_networks"],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60.0,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"network": 0, "loopback": 1}
