"""Client of a policy server: one connection, whose contract was checked, and requests with a deadline."""

from __future__ import annotations

import socket
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from policies.remote.address import DEADLINE_S, Address
from policies.remote.channel import ClosedError, FrameChannel, LateError
from policies.remote.contract import PolicyContract
from policies.remote.frames import DTYPES, Frame, GarbledError, shown
from policies.remote.server import HELLO_S, PROTOCOL
from policies.remote.token import is_nonce, nonce, proof, proves, read_token
from robo_rl.core.errors import RemoteError


class PolicyConnection:
    """Connection to a policy server. After any failure it stays failed: connect again.

    decided_s: the server's own time for the newest decision. Raises RemoteError if the server cannot be
    reached, refuses, or breaks the protocol; ConfigError for a token that cannot be read.
    """

    def __init__(self, address: Address) -> None:
        self.address, self._token = address, read_token(address.token)
        self._number, self._fault, self.decided_s = 0, "", 0.0
        self._channel = self._connect()
        try:
            self.contract = self._handshake()
        except RemoteError as error:
            self.close()
            raise self._failed(str(error)) from error
        self._channel.most_array_bytes = self.contract.most_request_bytes

    def sample(self, obs: dict[str, NDArray[Any]], noise: NDArray[np.float32]) -> NDArray[np.float32]:
        """Chunk (b, Tp, a) in [-1, 1] of observations (b, To, *shape) and noise (b, Tp, a)."""
        return self._ask("sample", obs, "noise", noise, "chunk")

    def refine(self, obs: dict[str, NDArray[Any]], action: NDArray[np.float32]) -> NDArray[np.float32]:
        """Corrected actions (b, a)."""
        return self._ask("refine", obs, "action", action, "refined")

    def close(self) -> None:
        """Close the connection. May be called twice."""
        self._channel.close()

    def _connect(self) -> FrameChannel:
        place = self.address.host, self.address.port
        try:
            return FrameChannel(socket.create_connection(place, timeout=HELLO_S), most_array_bytes=0)
        except OSError as error:
            reason = error.strerror or "no answer"
            raise RemoteError(
                f"No policy server answers at {self.address} ({reason}). Start it on that machine: "
                f"{self._serve_command()}"
            ) from error

    def _handshake(self) -> PolicyContract:
        """Exchange the first frames; returns the contract of the server."""
        hello = self._expect("hello", HELLO_S)
        first, second = hello.meta.get("nonce"), nonce()
        if hello.meta.get("protocol") != PROTOCOL or not is_nonce(first):
            raise GarbledError(f"it does not speak protocol {PROTOCOL}; use the same version of robo-rl")
        asks = hello.meta.get("token") is True
        if asks != (self._token is not None):
            raise RemoteError(_NEEDS_TOKEN if asks else _NO_TOKEN)
        answer: dict[str, Any] = {"protocol": PROTOCOL, "nonce": second}
        if self._token is not None:
            answer["proof"] = proof(self._token, "client", first, second)
        self._channel.send(Frame("open", answer), HELLO_S)
        reply = self._expect("contract", HELLO_S).meta
        if self._token is not None and not proves(reply.get("proof"), self._token, "server", first, second):
            raise RemoteError("it does not know the token, so it is not the server that was started with it")
        contract = reply.get("contract")
        if not isinstance(contract, dict):
            raise GarbledError("it sent no contract")
        return PolicyContract.from_json(contract)

    def _ask(
        self, kind: str, obs: dict[str, NDArray[Any]], extra: str, value: NDArray[np.float32], result: str
    ) -> NDArray[np.float32]:
        if self._fault:
            raise RemoteError(self._fault)
        self._number += 1
        types = {key: DTYPES[spec.dtype] for key, spec in self.contract.env.obs.items()}
        arrays = {f"obs.{key}": obs[key].astype(dtype, copy=False) for key, dtype in types.items()}
        arrays[extra] = value
        deadline_s, begin_s = self.address.deadline_s or DEADLINE_S, time.monotonic()
        try:
            self._channel.send(Frame(kind, {"number": self._number}, arrays), deadline_s)
            answer = self._expect(result, max(0.0, deadline_s - (time.monotonic() - begin_s)))
            return self._result(answer, result, value.shape)
        except RemoteError as error:
            self.close()
            late = isinstance(error, LateError)
            failed = self._failed(f"it did not answer within {deadline_s:g} s" if late else str(error))
            if late:
                failed = RemoteError(f"{failed} {_NO_SECOND_CONNECTION}.")
            elif isinstance(error, ClosedError):
                and_server = f", and the server too if that has ended: {self._serve_command()}"
                failed = RemoteError(f"{failed} {_NO_SECOND_CONNECTION}{and_server}")
            self._fault = str(failed)
            raise failed from error

    def _expect(self, kind: str, timeout_s: float) -> Frame:
        """The next frame, which must be of this kind."""
        frame = self._channel.receive(timeout_s)
        if frame.kind in ("refused", "error"):
            reason = frame.meta.get("reason")
            raise RemoteError(shown(reason if isinstance(reason, str) else "without a reason").rstrip("."))
        if frame.kind != kind:
            raise GarbledError(f"it sent '{shown(frame.kind)}', expected '{kind}'")
        return frame

    def _result(self, frame: Frame, name: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
        if frame.meta.get("number") != self._number:
            raise GarbledError("it answered another request")
        array = frame.arrays.get(name)
        if array is None or len(frame.arrays) != 1 or array.dtype != np.float32 or array.shape != shape:
            found = "none" if array is None else f"{array.dtype.name} {array.shape}"
            raise GarbledError(f"its answer holds the array '{name}' as {found}, expected float32 {shape}")
        if not np.isfinite(array).all():
            raise GarbledError("its answer is not finite")
        took_s = frame.meta.get("seconds")
        self.decided_s = took_s if isinstance(took_s, float) else 0.0
        return array

    def _serve_command(self) -> str:
        """Command that starts a server at this address; one for other machines needs a token."""
        command = f"robo-rl serve policy=<run> port={self.address.port}"
        local = self.address.host in ("localhost", "127.0.0.1", "::1")
        return command if local else f"{command} host=0.0.0.0 token=<file>"

    def _failed(self, reason: str) -> RemoteError:
        return RemoteError(f"The policy server at {self.address} cannot be used: {reason}.")


_NO_SECOND_CONNECTION = "This program does not reconnect: start it again"
_NEEDS_TOKEN = (
    "it asks for a token; give token=<file with the server's token>, or set ROBO_RL_TOKEN to the token"
)
_NO_TOKEN = "it asks for no token, but one was given; it is not the server that was started with this token"
