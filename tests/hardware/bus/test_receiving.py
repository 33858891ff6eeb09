"""Receive buffers are raised, and what they could not hold is counted."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from hardware.bus.dds.loopback import BASE, GAIN
from hardware.bus.receiving import discarded_datagrams, enlarge_buffers

DOMAIN, SENT = 101, 100  # a domain that no test uses
SMALL_BYTES = 4096


@pytest.fixture
def receiver() -> Iterator[socket.socket]:
    """A socket such as CycloneDDS opens, with a small buffer."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_BYTES)
        for port in range(BASE + GAIN * DOMAIN + 100, BASE + GAIN * (DOMAIN + 1)):
            try:
                made.bind(("0.0.0.0", port))
            except OSError:
                continue
            break
        yield made


def received(receiver: socket.socket) -> int:
    """Number of datagrams that are kept of those that are sent without a receiver."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for _ in range(SENT):
            sender.sendto(bytes(500), ("127.0.0.1", receiver.getsockname()[1]))
    receiver.setblocking(False)
    count = 0
    while True:
        try:
            receiver.recv(500)
        except BlockingIOError:
            return count
        count += 1


def test_discarded_datagrams_are_counted(receiver: socket.socket) -> None:
    assert discarded_datagrams(DOMAIN) == 0
    kept = received(receiver)
    assert 0 < kept < SENT
    assert discarded_datagrams(DOMAIN) == SENT - kept
    assert discarded_datagrams(DOMAIN + 1) == 0


def test_larger_buffer_keeps_all(receiver: socket.socket) -> None:
    """At most to the limit of the kernel, which is 208 kB by default."""
    enlarge_buffers(DOMAIN)
    assert receiver.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) > 100 * SMALL_BYTES / 2
    assert received(receiver) == SENT
    assert discarded_datagrams(DOMAIN) == 0
