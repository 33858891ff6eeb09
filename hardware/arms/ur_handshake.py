"""Is it a UR controller that listens? `ur_rtde` waits long for whoever accepts a connection and says nothing.

RTDE's first exchange, as Universal Robots' guide of the Real-Time Data Exchange has it: size (uint16, header
included), type (uint8), payload, big-endian. We ask for protocol version 2; one byte, 1, grants it.
"""

from __future__ import annotations

import socket
import struct
import time

from robo_rl.core.errors import DriverError

VERSION, MESSAGE = ord("V"), ord("M")  # types: request or grant of a protocol version, a text for the log
HEADER = struct.Struct(">HB")
_LARGEST = 4096  # bytes of a package that may stand before the answer


def shake_hands(host: str, port: int, limit_s: float = 2.0) -> None:
    """Raise DriverError unless a controller that speaks RTDE version 2 answers within `limit_s`."""
    end_s = time.monotonic() + limit_s
    try:
        with socket.create_connection((host, port), limit_s) as line:
            line.sendall(HEADER.pack(HEADER.size + 2, VERSION) + struct.pack(">H", 2))
            granted = _answer(line, end_s)
    except TimeoutError as error:
        raise DriverError(_stranger(host, port, f"said nothing of RTDE within {limit_s:g} s")) from error
    except OSError as error:
        raise DriverError(
            _stranger(host, port, f"ended the connection ({error.strerror or error})")
        ) from error
    if granted != b"\x01":
        raise DriverError(
            f"The controller at {host}:{port} does not speak version 2 of RTDE. Update it: CB3 from 3.3 on, "
            "e-Series, or later."
        )


def _answer(line: socket.socket, end_s: float) -> bytes:
    """The payload of the first package that is no text."""
    while True:
        head = _exactly(line, HEADER.size, end_s)
        size, kind = HEADER.unpack(head)
        if kind not in (VERSION, MESSAGE) or not HEADER.size < size <= _LARGEST:
            raise OSError(f"it speaks something else: {head!r}")
        payload = _exactly(line, size - HEADER.size, end_s)
        if kind == VERSION:
            return payload


def _exactly(line: socket.socket, size: int, end_s: float) -> bytes:
    got = b""
    while len(got) < size:
        line.settimeout(max(1e-3, end_s - time.monotonic()))
        part = line.recv(size - len(got))
        if not part:
            raise OSError("it hung up")
        got += part
    return got


def _stranger(host: str, port: int, what: str) -> str:
    return (
        f"Something listens at {host}:{port}, but it is no UR controller: it {what}. Is the address right, "
        "and has the controller finished booting?"
    )
