"""Check that a UR controller listens, because `ur_rtde` waits long for a server that does not answer.

The check is the first exchange of RTDE (Universal Robots, Real-Time Data Exchange guide). A package is its
size (uint16, header included), its type (uint8) and its payload, big-endian. We request protocol version 2;
the answer is one byte, 1 if it is accepted.
"""

from __future__ import annotations

import socket
import struct
import time

from robo_rl.core.errors import DriverError

VERSION, MESSAGE = ord("V"), ord("M")  # package types: protocol version, text for the log
HEADER = struct.Struct(">HB")
_LARGEST = 4096  # bytes of a package


def shake_hands(host: str, port: int, limit_s: float = 2.0) -> None:
    """Raise DriverError unless a controller that speaks RTDE version 2 answers within `limit_s`."""
    end_s = time.monotonic() + limit_s
    try:
        with socket.create_connection((host, port), limit_s) as line:
            line.sendall(HEADER.pack(HEADER.size + 2, VERSION) + struct.pack(">H", 2))
            granted = _answer(line, end_s)
    except TimeoutError as error:
        raise DriverError(_no_controller(host, port, f"sent no RTDE answer within {limit_s:g} s")) from error
    except OSError as error:
        reason = f"broke off the exchange ({error.strerror or error})"
        raise DriverError(_no_controller(host, port, reason)) from error
    if granted != b"\x01":
        raise DriverError(
            f"The controller at {host}:{port} does not support version 2 of RTDE. Update it: CB3 with 3.3 or "
            "later, e-Series, or a later model."
        )


def _answer(line: socket.socket, end_s: float) -> bytes:
    """Payload of the version answer; text packages before it are skipped."""
    while True:
        head = _exactly(line, HEADER.size, end_s)
        size, kind = HEADER.unpack(head)
        if kind not in (VERSION, MESSAGE) or not HEADER.size < size <= _LARGEST:
            raise OSError(f"unexpected package header {head!r}")
        payload = _exactly(line, size - HEADER.size, end_s)
        if kind == VERSION:
            return payload


def _exactly(line: socket.socket, size: int, end_s: float) -> bytes:
    got = b""
    while len(got) < size:
        line.settimeout(max(1e-3, end_s - time.monotonic()))
        part = line.recv(size - len(got))
        if not part:
            raise OSError("the connection was closed")
        got += part
    return got


def _no_controller(host: str, port: int, reason: str) -> str:
    return (
        f"The server at {host}:{port} is no UR controller: it {reason}. Check the address, and that the "
        "controller has finished booting."
    )
