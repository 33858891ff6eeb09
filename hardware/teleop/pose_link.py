"""Poses over TCP: one JSON object per line, from a program that tracks the hand; answers are feedback lines.

    device=pose_stream settings=hand.yaml      # listen: 127.0.0.1:8770, token_file: hand.token

One sender at a time: another one is refused while it sends, and takes its place once it is silent. Other
addresses than loopback need a token, which is the first line of the sender; before it, a connection is no
sender. TCP is not encrypted: over a network that others use, tunnel it, for example by ssh.
"""

from __future__ import annotations

import hmac
import json
import socket
from dataclasses import dataclass
from pathlib import Path

from hardware.description import RobotDescription
from hardware.teleop.device import Feedback, OperatorInput
from hardware.teleop.pose_stream import PoseStream
from robo_rl.core.errors import ConfigError, DataError, DriverError

MOST_BYTES = 65_536  # of lines that wait; a sender of more is refused
LOOPBACK = ("127.0.0.1", "localhost", "::1")
LEAST_TOKEN = 16
TOKEN_S = 2.0  # time in which the token has to come
SILENT_S = 1.0  # silence of a sender after which another one takes its place
MOST_PENDING = 8  # connections that have not sent the token yet; the oldest one is refused


@dataclass(slots=True)
class PendingConnection:
    """A connection whose token has not come yet."""

    socket: socket.socket
    since_s: float
    data: bytes = b""


class PoseLink:
    """A `PoseStream` fed by one TCP connection, which is read at each tick without waiting."""

    def __init__(self, stream: PoseStream, host: str, port: int, token: str = "") -> None:
        if host not in LOOPBACK and not token:
            raise ConfigError(f"listen: {host} is not loopback and needs token_file: with a token in it.")
        if token and len(token) < LEAST_TOKEN:
            raise ConfigError(f"The token has {len(token)} characters, expected {LEAST_TOKEN} or more.")
        self.stream, self._place, self._token = stream, (host, port), token
        self._listener: socket.socket | None = None
        self._pending: list[PendingConnection] = []
        self._sender: socket.socket | None = None
        self._data, self._heard_s = b"", 0.0  # bytes of a line that is not complete; time of the newest ones

    @property
    def port(self) -> int:
        """Port on which it listens; another than was given where that was 0."""
        return self._place[1] if self._listener is None else int(self._listener.getsockname()[1])

    def connect(self) -> None:
        try:
            self._listener = socket.create_server(self._place)
        except OSError as error:
            host, port = self._place
            raise DriverError(f"{host}:{port} cannot be listened on ({error}).") from error
        self._listener.setblocking(False)

    def get_action(self, now_s: float) -> OperatorInput:
        self._accept(now_s)
        for pending in self._pending[:]:
            self._admit(pending, now_s)
        self._receive(now_s)
        return self.stream.get_action(now_s)

    def send_feedback(self, feedback: Feedback) -> None:
        self.stream.send_feedback(feedback)
        if self._sender is not None:
            self._answer({"driving": feedback.driving, "slowed": round(feedback.slowed, 3)})

    def help(self) -> str:
        return f"{self.stream.help()} Poses are received on {self._place[0]}:{self.port}."

    def close(self) -> None:
        self._lose()
        while self._pending:
            self._pending.pop().socket.close()
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.close()

    def _accept(self, now_s: float) -> None:
        if self._listener is None:
            raise DriverError("The link of poses is closed. Start teleoperation again.")
        while True:
            try:
                sender, _ = self._listener.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            sender.setblocking(False)
            self._pending.append(PendingConnection(sender, now_s))
            if len(self._pending) > MOST_PENDING:
                self._turn_away(self._pending[0], "too many connections")

    def _admit(self, pending: PendingConnection, now_s: float) -> None:
        """Make a connection the sender once its token has come, unless another one sends."""
        if self._token:
            try:
                data = pending.socket.recv(4096)
            except BlockingIOError:
                data = None
            except OSError:
                data = b""
            if data == b"":
                return self._turn_away(pending, "")
            pending.data += data or b""
            token, end, rest = pending.data.partition(b"\n")
            if not end:
                if now_s - pending.since_s > TOKEN_S or len(pending.data) > MOST_BYTES:
                    self._turn_away(pending, "no token came")
                return
            if not hmac.compare_digest(token.strip(), self._token.encode()):
                return self._turn_away(pending, "wrong token")
            pending.data = rest
        if self._sender is not None:
            if now_s - self._heard_s <= SILENT_S:
                return self._turn_away(pending, "another sender is connected")
            self._refuse(f"silent for {SILENT_S:g} s, and another sender has connected")
        self._pending.remove(pending)
        self._sender, self._heard_s = pending.socket, now_s
        self._read(pending.data)

    def _turn_away(self, pending: PendingConnection, why: str) -> None:
        """End a connection that has not become the sender."""
        self._pending.remove(pending)
        if why:
            _try_send(pending.socket, {"error": why})
        pending.socket.close()

    def _receive(self, now_s: float) -> None:
        while self._sender is not None:
            try:
                data = self._sender.recv(4096)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self._lose()
                return
            self._heard_s = now_s
            self._read(data)

    def _read(self, data: bytes) -> None:
        """Take the complete lines."""
        *lines, self._data = (self._data + data).split(b"\n")
        for line in lines:
            if line.strip():
                self._take(line)
        if len(self._data) > MOST_BYTES:
            self._refuse("a line is too long")

    def _take(self, line: bytes) -> None:
        try:
            self.stream.put(json.loads(line))
        except (DataError, ValueError, RecursionError) as error:
            self._answer({"error": str(error)[:200]})

    def _refuse(self, why: str) -> None:
        self._answer({"error": why})
        self._lose()

    def _answer(self, item: dict[str, object]) -> None:
        if self._sender is not None:
            _try_send(self._sender, item)

    def _lose(self) -> None:
        sender, self._sender = self._sender, None
        self._data = b""
        if sender is not None:
            sender.close()
        self.stream.lose()


def _try_send(sender: socket.socket, item: dict[str, object]) -> None:
    """Send a line, or drop it where the sender does not read: control waits for nobody."""
    try:
        sender.send(json.dumps(item).encode() + b"\n")
    except OSError:
        return


def make_pose_link(
    robot: RobotDescription,
    listen: str = "127.0.0.1:8770",
    token_file: str = "",
    frame: str = "webxr",
    yaw_rad: float = 0.0,
) -> PoseLink:
    """A link with the settings of a file."""
    host, colon, port = listen.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        raise ConfigError(f"listen: {listen} cannot be used, expected <host>:<port>.")
    if token_file and not Path(token_file).is_file():
        raise ConfigError(f"token_file: {token_file} does not exist.")
    token = Path(token_file).read_text().strip() if token_file else ""
    return PoseLink(PoseStream(frame, yaw_rad), host.strip("[]"), int(port), token)
