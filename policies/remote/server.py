"""Server of one policy: each client in a thread of its own, one decision at a time.

It imports no torch, so that a policy of another package can be served from that package's environment.
"""

from __future__ import annotations

import contextlib
import select
import socket
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from policies.remote.channel import ClosedError, FrameChannel, LateError
from policies.remote.contract import MOST_ROWS, PolicyContract, check_types
from policies.remote.frames import DTYPES, Frame, GarbledError, shown
from policies.remote.token import is_nonce, nonce, proof, proves
from robo_rl.core.errors import RemoteError, RoboRLError

PROTOCOL = 1
HELLO_S = 5.0  # longest time of the first frames of a connection
FRAME_S = 10.0  # longest time of a frame from its first byte to its last
MOST_WAITING = 32  # connections in their first frames
FINISH_S = 5.0  # longest time of a decision that is being made when the server ends
_POLL_S = 0.2
_HELLO_BYTES = 0  # arrays of a client that has not proved itself
Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class ServedPolicy:
    """A policy as functions of arrays with a batch axis, and its contract.

    sample: observations (b, To, *shape) and noise (b, Tp, a) -> chunk (b, Tp, a) in [-1, 1], all float32 or
    as in the contract. refine: observations and actions (b, a) -> actions; None if it changes nothing.
    """

    contract: PolicyContract
    sample: Callable[[Arrays, NDArray[Any]], NDArray[Any]]
    refine: Callable[[Arrays, NDArray[Any]], NDArray[Any]] | None = None


class PolicyServer:
    """Serves a policy on a listening socket until it is told to stop.

    token: secret that clients must know; None: no proof is asked for. most_clients: clients that are served
    at a time. say: prints a line.
    """

    def __init__(
        self,
        served: ServedPolicy,
        listener: socket.socket,
        token: str | None = None,
        *,
        most_clients: int = 8,
        say: Callable[[str], None] = print,
    ) -> None:
        check_types(served.contract.env)
        self._served, self._listener, self._token, self._say = served, listener, token, say
        self._most_clients, self._deciding = most_clients, threading.Lock()
        self._places = threading.Semaphore(most_clients)
        self._clients: dict[threading.Thread, FrameChannel] = {}  # all connections
        self._waiting: dict[FrameChannel, str] = {}  # those in their first frames, oldest first; their hosts
        self.clients = self.answered = 0  # connections that passed the first frames; decisions

    def serve(self, stop: Callable[[], bool]) -> None:
        """Accept clients until `stop()`, then let a decision that is being made finish."""
        self._listener.setblocking(False)
        try:
            while not stop():
                if select.select([self._listener], [], [], _POLL_S)[0]:
                    with contextlib.suppress(OSError):  # a client that is gone already
                        self._accept(*self._listener.accept())
        finally:
            self.close()

    def close(self) -> None:
        """End: no new clients; the running decision is answered, then all connections are closed."""
        self._listener.close()
        running = list(self._clients.items())
        for _, channel in running:
            channel.stop_reading()
        end_s = time.monotonic() + FINISH_S
        for thread, channel in running:
            thread.join(max(0.0, end_s - time.monotonic()))
            channel.close()

    def _accept(self, connected: socket.socket, place: Any) -> None:
        connected.setblocking(True)
        channel = FrameChannel(connected, _HELLO_BYTES)
        self._clients = {thread: open_ for thread, open_ in self._clients.items() if thread.is_alive()}
        self._make_room()
        self._waiting[channel] = place[0]
        where = f"{place[0]}:{place[1]}"
        thread = threading.Thread(target=self._attend, args=(channel, where), daemon=True, name=where)
        self._clients[thread] = channel
        thread.start()

    def _make_room(self) -> None:
        """End the oldest of too many first frames, of the host with the most of them.

        A peer without the token can so lock out nobody: a client passes its first frames at once.
        """
        waiting = list(self._waiting.items())
        if len(waiting) < MOST_WAITING:
            return
        [(crowd, _)] = Counter(host for _, host in waiting).most_common(1)
        oldest = next(channel for channel, host in waiting if host == crowd)
        if self._waiting.pop(oldest, None) is not None:  # otherwise it has just passed
            oldest.hang_up()

    def _attend(self, channel: FrameChannel, where: str) -> None:
        """Serve one client until it leaves or breaks the protocol."""
        try:
            answer = self._handshake(channel, where)
            if answer is None or self._waiting.pop(channel, None) is None:
                return
            if not self._places.acquire(blocking=False):
                self._refuse(channel, f"it serves {self._most_clients} clients already")
                return
            try:
                self._serve(channel, answer)
            finally:
                self._places.release()
        except ClosedError:
            return
        except LateError:
            self._say(f"serve: {where} was disconnected: a frame took more than {FRAME_S:g} s.")
        except RemoteError as error:
            self._say(f"serve: {where} was disconnected: {error}.")
            self._refuse(channel, f"a frame was refused: {error}")
        finally:
            self._waiting.pop(channel, None)
            channel.close()

    def _serve(self, channel: FrameChannel, contract: Frame) -> None:
        """Tell the contract, then answer requests until the client leaves."""
        channel.send(contract, HELLO_S)
        self.clients += 1
        channel.most_array_bytes = self._served.contract.most_request_bytes
        while True:
            self._answer(channel, channel.receive(FRAME_S, idle=True))

    def _handshake(self, channel: FrameChannel, where: str) -> Frame | None:
        """Exchange the first frames; returns the last of them, the contract, or None for a client that was
        refused.
        """
        first, asks = nonce(), self._token is not None
        channel.send(Frame("hello", {"protocol": PROTOCOL, "nonce": first, "token": asks}), HELLO_S)
        opening = channel.receive(HELLO_S)
        if opening.kind != "open" or opening.meta.get("protocol") != PROTOCOL:
            raise GarbledError(f"a frame 'open' of protocol {PROTOCOL} was expected")
        second = opening.meta.get("nonce")
        if not is_nonce(second):
            raise GarbledError("its frame 'open' holds no nonce")
        answer: dict[str, Any] = {"contract": self._served.contract.to_json()}
        if self._token is not None:
            if not proves(opening.meta.get("proof"), self._token, "client", first, second):
                self._say(f"serve: {where} was refused: its token is missing or wrong.")
                self._refuse(channel, "its token differs: give the client the server's token")
                return None
            answer |= {"proof": proof(self._token, "server", first, second)}
        return Frame("contract", answer)

    def _answer(self, channel: FrameChannel, request: Frame) -> None:
        number = request.meta.get("number")
        if type(number) is not int:
            raise GarbledError("a request without a number")
        try:
            begin_s = time.perf_counter()
            name, result = self._decide(request)
            took_s = time.perf_counter() - begin_s
        except GarbledError:
            raise
        except RoboRLError as error:
            channel.send(Frame("error", {"number": number, "reason": str(error)}), FRAME_S)
            return
        except Exception as error:  # a defect of the policy: the client is told, others are still served
            traceback.print_exc()
            reason = f"an error in the policy: {type(error).__name__}"
            channel.send(Frame("error", {"number": number, "reason": reason}), FRAME_S)
            return
        self.answered += 1
        channel.send(Frame(name, {"number": number, "seconds": took_s}, {name: result}), FRAME_S)

    def _decide(self, request: Frame) -> tuple[str, NDArray[Any]]:
        """(name of the result, result) of a checked request."""
        contract, served = self._served.contract, self._served
        a = contract.env.action.dim
        if request.kind == "sample":
            obs, noise = checked(request.arrays, contract, "noise", (contract.chunk, a))
            with self._deciding:
                return "chunk", _result(served.sample(obs, noise), noise.shape)
        if request.kind == "refine" and served.refine is not None:
            obs, action = checked(request.arrays, contract, "action", (a,))
            with self._deciding:
                return "refined", _result(served.refine(obs, action), action.shape)
        raise GarbledError(f"it does not know the request '{shown(request.kind)}'")

    def _refuse(self, channel: FrameChannel, reason: str) -> None:
        """Tell the client why, then close."""
        with contextlib.suppress(RemoteError):
            channel.send(Frame("refused", {"reason": reason}), HELLO_S)
        channel.close()


def checked(
    arrays: Arrays, contract: PolicyContract, extra: str, shape: tuple[int, ...]
) -> tuple[Arrays, NDArray[Any]]:
    """(observations, the array `extra`) of a request. Raises GarbledError for others than the contract's."""
    wanted = {
        f"obs.{key}": ((contract.obs_steps, *spec.shape), spec.dtype)
        for key, spec in contract.env.obs.items()
    } | {extra: (shape, "float32")}
    if arrays.keys() != wanted.keys():
        raise GarbledError(f"a request holds {shown(str(sorted(arrays)))}, expected {sorted(wanted)}")
    rows = len(arrays[extra]) if arrays[extra].ndim else 0
    if not 1 <= rows <= MOST_ROWS:
        raise GarbledError(f"a request holds {rows} observations, expected 1 to {MOST_ROWS}")
    for name, (inner, dtype) in wanted.items():
        array = arrays[name]
        if array.dtype != DTYPES[dtype] or array.shape != (rows, *inner):
            raise GarbledError(
                f"'{name}' is {array.dtype.name} {array.shape}, expected {dtype} {(rows, *inner)}"
            )
    return {key: arrays[f"obs.{key}"] for key in contract.env.obs}, arrays[extra]


def _result(result: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """The policy's answer. Raises RemoteError for another shape, or values that are not finite."""
    if result.shape != shape or result.dtype != np.float32:
        raise RemoteError(f"the policy answered {result.dtype.name} {result.shape}, expected float32 {shape}")
    if not np.isfinite(result).all():
        raise RemoteError("the policy's answer is not finite")
    return result
