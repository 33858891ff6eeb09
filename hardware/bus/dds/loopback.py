"""Binding of the receiving sockets of CycloneDDS to the loopback.

CycloneDDS receives on all addresses of the machine (0.0.0.0) even when it announces and sends on the loopback
alone; no setting of its own changes that. Its sockets belong to this process, so they are bound to the device
here (SO_BINDTODEVICE): the kernel then discards what other machines send.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

from robo_rl.core.errors import BusError

DEVICE = b"lo"
BASE, GAIN = 7400, 250  # ports of a domain, by the specification of DDSI-RTPS
ANYWHERE = "0.0.0.0"
OWN_FILES = Path("/proc/self/fd")  # of Linux


def used_ports(domain: int) -> frozenset[int]:
    """Ports of the domain on which this process receives already, such as those of a node on rclpy."""
    ports = set()
    for port, made in open_ports(domain):
        made.close()
        ports.add(port)
    return frozenset(ports)


def confine(domain: int, others: frozenset[int] = frozenset()) -> None:
    """Bind the receiving sockets of the domain to the loopback, before a participant exists.

    others: ports that are not of CycloneDDS; Fast DDS, bound to the loopback, would not be heard. Raises
    BusError when the kernel refuses it, or when no such socket is found.
    """
    with ExitStack() as closing:
        every = [(port, closing.enter_context(made)) for port, made in open_ports(domain)]
        found = [made for port, made in every if port not in others]
        _bind(found)
    if not found:
        raise BusError(
            f"No receiving socket of DDS domain {domain} was found in /proc/self/fd, so it cannot be bound "
            "to the loopback. Mount /proc, or name a network that may send to these nodes: "
            "ROBO_RL_INTERFACE=eth0."
        )


def _bind(sockets: list[socket.socket]) -> None:
    try:
        for made in sockets:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, DEVICE)
    except OSError as error:
        raise BusError(
            f"The sockets of DDS cannot be bound to the loopback ({error.strerror}); this needs Linux 5.7 or "
            "later. To let other machines send to these nodes, name the network: ROBO_RL_INTERFACE=eth0."
        ) from error


def open_ports(domain: int) -> Iterator[tuple[int, socket.socket]]:
    """(port, duplicate) of this process' UDP sockets that receive on all addresses in the domain's ports."""
    first = BASE + GAIN * domain
    for link in OWN_FILES.iterdir():
        with suppress(OSError):  # closed meanwhile
            if not str(link.readlink()).startswith("socket:"):
                continue
            made = socket.socket(fileno=os.dup(int(link.name)))
            if made.family == socket.AF_INET and made.type == socket.SOCK_DGRAM:
                address, port = made.getsockname()
                if address == ANYWHERE and first <= port < first + GAIN:
                    yield port, made
                    continue
            made.close()
