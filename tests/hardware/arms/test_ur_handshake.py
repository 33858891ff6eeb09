"""RTDE handshake: a server that accepts TCP connections is not yet a UR controller. Needs no vendor's
package.
"""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from hardware.arms.ur_handshake import shake_hands
from robo_rl.core.errors import DriverError
from tests.hardware.peers import Peer, own_address

LIMIT_S = 0.4
GRANT = struct.pack(">HBB", 4, ord("V"), 1)
TEXT = struct.pack(">HB", 3 + 5, ord("M")) + b"hello"


@contextmanager
def listener(behave: Callable[[socket.socket], None]) -> Iterator[int]:
    """A server of one connection. Yields its port."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            line, _ = server.accept()
            with line:
                behave(line)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        thread.join(5.0)


def mute(line: socket.socket) -> None:
    line.recv(64)
    line.recv(64)  # until the other side has had enough


def drip(line: socket.socket) -> None:
    """Send one byte at a time, each well within the limit, never a whole answer."""
    for byte in GRANT:
        try:
            line.sendall(bytes([byte]))
        except OSError:
            return
        time.sleep(0.6 * LIMIT_S)


def says(answer: bytes) -> Callable[[socket.socket], None]:
    def behave(line: socket.socket) -> None:
        line.recv(64)
        line.sendall(answer)

    return behave


@pytest.mark.parametrize(
    ("behave", "sentence"),
    [
        (mute, r"no UR controller: it sent no RTDE answer within 0\.4 s"),
        (drip, r"no UR controller: it sent no RTDE answer within 0\.4 s"),
        (
            says(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
            "no UR controller: it broke off the exchange .unexpected package header",
        ),
        (says(b"\0"), "the connection was closed"),
        (says(struct.pack(">HB", 60000, ord("M"))), "unexpected package header"),
        (says(struct.pack(">HBB", 4, ord("V"), 0)), "does not support version 2 of RTDE. Update it"),
    ],
)
def test_other_servers_are_refused(behave: Callable[[socket.socket], None], sentence: str) -> None:
    """In one sentence, and shortly after the time limit at the latest."""
    begin_s = time.monotonic()
    with listener(behave) as port, pytest.raises(DriverError, match=sentence):
        shake_hands("127.0.0.1", port, LIMIT_S)
    assert time.monotonic() - begin_s < LIMIT_S + 2.5  # of which most is this machine being busy


def test_controller_may_send_text_first() -> None:
    with listener(says(TEXT + TEXT + GRANT)) as port:
        shake_hands("127.0.0.1", port, 5.0)


def test_fake_controller_of_the_driver_tests_is_accepted() -> None:
    host = own_address()
    with Peer("arms.fake_ur", host):
        shake_hands(host, 30004)
