"""Frames over a connected socket, each with a deadline."""

from __future__ import annotations

import contextlib
import socket
import time
import weakref
from typing import Any

from numpy.typing import NDArray

from policies.remote.frames import PREFIX, Frame, empty, encode, read_header, read_prefix
from robo_rl.core.errors import RemoteError

_ONE_PACKET = 1 << 16  # bytes up to which a frame is copied into one buffer, and so sent at once
PROBE_AFTER_S, PROBE_EVERY_S, PROBES = 20, 5, 4  # of a silent peer, see `_keep_alive`


class LateError(RemoteError):
    """No complete frame before the deadline."""


class ClosedError(RemoteError):
    """The peer has closed the connection, or it broke."""


class FrameChannel:
    """Sends and receives frames. most_array_bytes: largest arrays of a frame that are received.

    A peer that vanished without a word, as by loss of power, counts as closed after 40 s.
    """

    def __init__(self, connected: socket.socket, most_array_bytes: int) -> None:
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        _keep_alive(connected)
        self.most_array_bytes = most_array_bytes
        self._socket = connected
        # Also for an owner that forgets: a garbage-collected open socket is a ResourceWarning.
        self.close = weakref.finalize(self, connected.close)

    def send(self, frame: Frame, timeout_s: float) -> None:
        """Send all of the frame within `timeout_s`."""
        parts = encode(frame)
        if sum(len(part) for part in parts) <= _ONE_PACKET:
            parts = [b"".join(parts)]
        end_s = time.monotonic() + timeout_s
        try:
            for part in parts:
                self._socket.settimeout(_left(end_s))
                self._socket.sendall(part)
        except OSError as error:
            raise _failure(error, f"it did not take the frame within {timeout_s:g} s") from error

    def receive(self, timeout_s: float, idle: bool = False) -> Frame:
        """Receive a frame within `timeout_s`, which begins at its first byte if `idle`.

        Raises LateError, ClosedError, or GarbledError for bytes that are no frame.
        """
        prefix = bytearray(PREFIX.size)
        try:
            end_s = time.monotonic() + timeout_s
            begun = 0
            if idle:
                self._socket.settimeout(None)
                begun = self._some(memoryview(prefix))
                end_s = time.monotonic() + timeout_s
            self._fill(memoryview(prefix)[begun:], end_s)
            header_bytes, array_bytes = read_prefix(bytes(prefix), self.most_array_bytes)
            words = bytearray(header_bytes)
            self._fill(memoryview(words), end_s)
            header, arrays = read_header(bytes(words), array_bytes), dict[str, NDArray[Any]]()
            for name, layout in header.arrays.items():
                arrays[name], place = empty(layout)
                self._fill(place, end_s)
        except OSError as error:
            raise _failure(error, f"it did not answer within {timeout_s:g} s") from error
        return Frame(header.kind, header.meta, arrays)

    def stop_reading(self) -> None:
        """Let a `receive` of another thread end; a frame can still be sent."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RD)

    def hang_up(self) -> None:
        """Let a `receive` of another thread end, and the peer notice."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def _fill(self, place: memoryview, end_s: float) -> None:
        while place:
            self._socket.settimeout(_left(end_s))
            place = place[self._some(place) :]

    def _some(self, place: memoryview) -> int:
        count = self._socket.recv_into(place)
        if count == 0:
            raise ClosedError("it closed the connection")
        return count


def _keep_alive(connected: socket.socket) -> None:
    """Let the system ask a silent peer whether it is there, and break the connection if nothing answers."""
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    most_ms = 1000 * (PROBE_AFTER_S + PROBES * PROBE_EVERY_S)
    for option, value in (
        (socket.TCP_KEEPIDLE, PROBE_AFTER_S),
        (socket.TCP_KEEPINTVL, PROBE_EVERY_S),
        (socket.TCP_KEEPCNT, PROBES),
        (socket.TCP_USER_TIMEOUT, most_ms),  # the same for a peer that vanished before it took an answer
    ):
        connected.setsockopt(socket.IPPROTO_TCP, option, value)


def _failure(error: OSError, late: str) -> RemoteError:
    """LateError for a deadline; ClosedError for a connection that broke, also by the system's ETIMEDOUT."""
    if isinstance(error, TimeoutError) and error.errno is None:
        return LateError(late)
    return ClosedError("it closed the connection")


def _left(end_s: float) -> float:
    """Seconds until the deadline. Raises TimeoutError when there are none."""
    if (left_s := end_s - time.monotonic()) <= 0.0:
        raise TimeoutError
    return left_s
