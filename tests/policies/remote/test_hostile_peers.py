"""Clients and servers that break the protocol: one sentence, and everyone else is served on."""

from __future__ import annotations

import errno
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from policies.deploy.bundle import Bundle
from policies.deploy.runner import OnnxPolicy
from policies.remote import server as serving
from policies.remote.address import Address
from policies.remote.channel import ClosedError, FrameChannel
from policies.remote.client import PolicyConnection
from policies.remote.contract import bundle_contract
from policies.remote.frames import MAGIC, PREFIX, Frame, encode
from policies.remote.policy import RemotePolicy
from policies.remote.token import proof
from robo_rl.core.errors import RemoteError
from tests.policies.remote.serving import Running, Start, connected, greeted, served
from tests.policies.remote.test_frames import BAD_WORDS, raw
from tests.policies.remote.test_remote_policy import TOKEN, noise_of, observations

OPEN = {"protocol": 1, "nonce": "0" * 32}


def opened(running: Running) -> FrameChannel:
    """FrameChannel whose first frames were exchanged."""
    channel = FrameChannel(connected(running), 1 << 20)
    assert channel.receive(5.0).kind == "hello"
    channel.send(Frame("open", OPEN), 5.0)
    assert channel.receive(5.0).kind == "contract"
    return channel


def refusal(channel: FrameChannel) -> str:
    """Reason with which the server closes the connection."""
    frame = channel.receive(5.0)
    assert frame.kind == "refused"
    with pytest.raises(RemoteError):
        channel.receive(5.0)
    return str(frame.meta["reason"])


def works(running: Running, bundle: Bundle) -> None:
    """A well-behaved client is still served, exactly."""
    remote = RemotePolicy(running.address)
    obs, noise = observations(remote.contract, 2), noise_of(remote.contract, 2)
    assert remote.sample(obs, noise).equal(OnnxPolicy(bundle, "cpu").sample(obs, noise))
    remote.close()


def request(**changes: Any) -> dict[str, Any]:
    arrays = {"obs.state": np.zeros((1, 2, 2), np.float32), "noise": np.zeros((1, 4, 1), np.float32)}
    return {name: array for name, array in (arrays | changes).items() if array is not None}


NO_ROWS = {"obs.state": np.zeros((0, 2, 2), np.float32), "noise": np.zeros((0, 4, 1), np.float32)}
BYTES = {
    "nothing": b"",
    "HTTP": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "a pickle": b"\x80\x04\x95" + b"\0" * 40,
    "half a prefix": PREFIX.pack(MAGIC, 20, 0)[:7],
    "a header that does not come": PREFIX.pack(MAGIC, 20, 0) + b"{",
    "a huge header": PREFIX.pack(MAGIC, 2**32 - 1, 0),
    "huge arrays": PREFIX.pack(MAGIC, 20, 2**63),
    **{name: raw(words) for name, words in BAD_WORDS.items()},
}


@pytest.mark.parametrize("sent", BYTES.values(), ids=BYTES)
@pytest.mark.parametrize("when", ["first", "later"])
def test_bytes_that_are_no_frame(button_bundle: Bundle, start: Start, sent: bytes, when: str) -> None:
    """Before and after the first frames; the client then goes away."""
    running = start(served(button_bundle))
    if when == "later":
        channel = opened(running)
        raw_socket = channel._socket
    else:
        raw_socket = connected(running)
    with closing(raw_socket), suppress(OSError):  # the server may close before it has read everything
        raw_socket.sendall(sent)
        raw_socket.shutdown(socket.SHUT_WR)
    works(running, button_bundle)
    assert all(line.isprintable() for line in running.said)


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        (request(noise=None), "a request holds"),
        (request(more=np.zeros(1, np.float32)), "a request holds"),
        (request(noise=np.zeros((1, 4, 2), np.float32)), "'noise' is float32 (1, 4, 2), expected"),
        (request(noise=np.zeros((2, 4, 1), np.float32)), "'obs.state' is float32 (1, 2, 2), expected"),
        (request(noise=np.zeros((1, 4, 1), np.float64)), "'noise' is float64"),
        (request(noise=np.zeros((), np.float32)), "0 observations"),
        (NO_ROWS, "0 observations"),
        (request(**{"obs.state": np.zeros((1, 2, 2), np.uint8)}), "'obs.state' is uint8"),
    ],
)  # fmt: skip
def test_requests_that_break_the_contract(
    button_bundle: Bundle, start: Start, arrays: dict[str, Any], words: str
) -> None:
    running = start(served(button_bundle))
    channel = opened(running)
    channel.send(Frame("sample", {"number": 1}, arrays), 5.0)
    assert words in refusal(channel)
    works(running, button_bundle)


@pytest.mark.parametrize(
    "frame",
    [
        Frame("exec", {"number": 1}, request()),
        Frame(
            "refine",
            {"number": 1},
            {"obs.state": np.zeros((1, 2, 2), np.float32), "action": np.zeros((1, 1))},
        ),
        Frame("sample", {"number": "1"}, request()),
        Frame("sample", {}, request()),
        Frame("open", OPEN),
    ],
)
def test_unknown_requests(button_bundle: Bundle, start: Start, frame: Frame) -> None:
    running = start(served(button_bundle))
    channel = opened(running)
    channel.send(frame, 5.0)
    assert refusal(channel)
    works(running, button_bundle)


@pytest.mark.parametrize(
    "meta",
    [
        {},
        OPEN | {"protocol": 2},
        OPEN | {"protocol": "1"},
        OPEN | {"nonce": 3},
        OPEN | {"nonce": "0" * 65},
        OPEN | {"nonce": "0G"},
    ],
)
def test_openings_of_another_protocol(button_bundle: Bundle, start: Start, meta: dict[str, Any]) -> None:
    running = start(served(button_bundle))
    channel = FrameChannel(connected(running), 0)
    channel.receive(5.0)
    channel.send(Frame("open", meta), 5.0)
    assert "a frame was refused" in refusal(channel)
    works(running, button_bundle)


def test_nonce_of_a_client_that_cannot_be_encoded(button_bundle: Bundle, start: Start) -> None:
    """A lone surrogate is valid JSON, but a proof cannot be computed of it."""
    channel = FrameChannel(connected(start(served(button_bundle), TOKEN)), 0)
    channel.receive(5.0)
    channel.send(Frame("open", OPEN | {"nonce": "\ud800", "proof": "0" * 64}), 5.0)
    assert "holds no nonce" in refusal(channel)


@pytest.mark.parametrize("given", [None, "", 1, "0" * 64, "ä" * 64, TOKEN, proof(TOKEN, "client", "1", "2")])
def test_wrong_proofs(button_bundle: Bundle, start: Start, given: Any) -> None:
    """The contract is not told to a client that does not know the token, nor are its arrays read."""
    running = start(served(button_bundle), TOKEN)
    channel = FrameChannel(connected(running), 0)
    channel.receive(5.0)
    channel.send(Frame("open", OPEN | {"proof": given}), 5.0)
    assert refusal(channel).startswith("its token differs")
    assert running.server.clients == 0


def test_arrays_before_the_contract_are_refused(button_bundle: Bundle, start: Start) -> None:
    running = start(served(button_bundle), TOKEN)
    channel = FrameChannel(connected(running), 0)
    channel.receive(5.0)
    channel.send(Frame("open", OPEN, {"x": np.zeros(1000, np.uint8)}), 5.0)
    assert "at most 0 are read" in refusal(channel)


def test_slow_client_is_disconnected(
    button_bundle: Bundle, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A byte now and then does not keep a place; a client that is silent between requests keeps it."""
    monkeypatch.setattr(serving, "FRAME_S", 0.3)
    running = start(served(button_bundle))
    silent = RemotePolicy(running.address)
    slow, begin_s = opened(running), time.monotonic()
    with suppress(OSError):
        for byte in b"".join(encode(Frame("sample", {"number": 1}, request()))):
            slow._socket.sendall(bytes([byte]))
            time.sleep(0.05)
    slow.close()
    assert time.monotonic() - begin_s < 3.0
    assert [line for line in running.said if "a frame took more than 0.3 s" in line]
    silent.sample(observations(silent.contract, 1), noise_of(silent.contract, 1))


def test_peers_without_the_token_take_no_place(
    button_bundle: Bundle, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """40 silent connections beside a server of one client; the oldest of them are ended."""
    monkeypatch.setenv("ROBO_RL_TOKEN", TOKEN)
    running = start(served(button_bundle), TOKEN, most_clients=1)
    silent = [greeted(running) for _ in range(serving.MOST_WAITING + 8)]
    works(running, button_bundle)
    assert silent[0].recv(1 << 12)
    assert silent[0].recv(1) == b""
    for each in silent:
        each.close()


def test_a_crowd_does_not_end_the_first_frames_of_another_host(
    button_bundle: Bundle, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "MOST_WAITING", 4)
    running = start(served(button_bundle))
    slow = FrameChannel(connected(running, "127.0.0.2"), 1 << 20)
    assert slow.receive(5.0).kind == "hello"
    crowd = [greeted(running) for _ in range(8)]
    slow.send(Frame("open", OPEN), 5.0)
    assert slow.receive(5.0).kind == "contract"
    for each in (slow, *crowd):
        each.close()


def test_a_client_that_vanished_counts_as_closed(button_bundle: Bundle, start: Start) -> None:
    """The system asks a silent client; what it then raises is a broken connection, not a late frame."""
    running = start(served(button_bundle))
    client = opened(running)
    [at_server] = running.server._clients.values()
    assert at_server._socket.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
    assert at_server._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) <= 60
    assert at_server._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) <= 60_000
    client.close()
    with closing(socket.socket()) as plain:
        silent = FrameChannel(plain, 0)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(FrameChannel, "_some", vanished)
            with pytest.raises(ClosedError):
                silent.receive(5.0, idle=True)


def vanished(channel: FrameChannel, place: memoryview) -> int:
    raise TimeoutError(errno.ETIMEDOUT, "Connection timed out")


# -- servers
# ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def impostor() -> Iterator[Callable[[Callable[[FrameChannel], None]], Address]]:
    """Starts a server that treats one client as the given function says."""
    threads, listeners = list[threading.Thread](), list[socket.socket]()

    def begin(treat: Callable[[FrameChannel], None]) -> Address:
        listener = socket.create_server(("127.0.0.1", 0))

        def attend() -> None:
            channel = FrameChannel(listener.accept()[0], 1 << 20)
            with suppress(RemoteError, OSError):
                treat(channel)
            channel.close()

        listeners.append(listener)
        threads.append(threading.Thread(target=attend))
        threads[-1].start()
        return Address("127.0.0.1", listener.getsockname()[1], deadline_s=5.0)

    yield begin
    for thread in threads:
        thread.join()
    for listener in listeners:
        listener.close()


HELLO = Frame("hello", {"protocol": 1, "nonce": "0" * 32, "token": False})


@pytest.mark.parametrize("sent", BYTES.values(), ids=BYTES)
def test_servers_that_speak_something_else(impostor: Any, sent: bytes) -> None:
    address = impostor(lambda channel: channel._socket.sendall(sent))
    with pytest.raises(RemoteError) as caught:
        PolicyConnection(address)
    assert str(caught.value).startswith(f"The policy server at {address} cannot be used: ")
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 700


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        (replace(HELLO, meta={}), "does not speak protocol 1"),
        (replace(HELLO, meta=HELLO.meta | {"protocol": 7}), "does not speak protocol 1"),
        (replace(HELLO, meta=HELLO.meta | {"nonce": 7}), "does not speak protocol 1"),
        (Frame("chunk", {}), "it sent 'chunk', expected 'hello'"),
        (Frame("refused", {"reason": "\x1b[2J" + "x" * 9000}), "cannot be used: ?[2Jxxx"),
        (Frame("refused", {"reason": [1]}), "without a reason"),
    ],
)
def test_first_frames_of_another_protocol(impostor: Any, frame: Frame, words: str) -> None:
    with pytest.raises(RemoteError) as caught:
        PolicyConnection(impostor(lambda channel: channel.send(frame, 5.0)))
    assert words in str(caught.value)


def test_nonce_of_a_server_that_cannot_be_encoded(impostor: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """As that of a client."""
    monkeypatch.setenv("ROBO_RL_TOKEN", TOKEN)
    hello = replace(HELLO, meta=HELLO.meta | {"nonce": "\ud800", "token": True})
    with pytest.raises(RemoteError, match="does not speak protocol 1"):
        PolicyConnection(impostor(lambda channel: channel.send(hello, 5.0)))


def test_impostor_without_the_token_is_found(
    impostor: Any, button_bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that asks for the token but cannot prove that it knows it sends no chunk to a robot."""
    monkeypatch.setenv("ROBO_RL_TOKEN", TOKEN)
    contract = bundle_contract(button_bundle).to_json()

    def treat(channel: FrameChannel) -> None:
        channel.send(replace(HELLO, meta=HELLO.meta | {"token": True}), 5.0)
        theirs = channel.receive(5.0).meta["proof"]
        channel.send(Frame("contract", {"contract": contract, "proof": theirs}), 5.0)

    with pytest.raises(RemoteError, match="it does not know the token"):
        PolicyConnection(impostor(treat))


def chunk(number: Any = 1, **changes: Any) -> Frame:
    arrays = {"chunk": np.zeros((1, 4, 1), np.float32)} | changes
    return Frame("chunk", {"number": number}, {k: v for k, v in arrays.items() if v is not None})


ANSWERS: dict[str, tuple[Frame | bytes, str]] = {
    "not a number": (chunk(chunk=np.full((1, 4, 1), np.nan, np.float32)), "its answer is not finite"),
    "infinite": (chunk(chunk=np.full((1, 4, 1), np.inf, np.float32)), "its answer is not finite"),
    "another shape": (chunk(chunk=np.zeros((1, 4, 2), np.float32)), "expected float32 (1, 4, 1)"),
    "another type": (chunk(chunk=np.zeros((1, 4, 1))), "as float64"),
    "no chunk": (chunk(chunk=None), "as none"),
    "two arrays": (chunk(more=np.zeros(1)), "holds the array 'chunk'"),
    "an older answer": (chunk(0), "it answered another request"),
    "no number": (chunk(None), "it answered another request"),
    "another kind": (Frame("refined", {"number": 1}), "it sent 'refined', expected 'chunk'"),
    "an error": (Frame("error", {"reason": "out of memory"}), "cannot be used: out of memory."),
    "cut": (b"".join(encode(chunk()))[:-3], "it closed the connection"),
    "garbled": (b"\xff" * 200, "it is not a robo-rl of this version"),
    "nothing": (b"", "it closed the connection"),
}


@pytest.mark.parametrize(("answer", "words"), ANSWERS.values(), ids=ANSWERS)
def test_answers_that_are_no_chunk(
    impostor: Any, button_bundle: Bundle, answer: Frame | bytes, words: str
) -> None:
    """Each is one sentence, and the connection stays failed: nothing of it reaches a robot."""
    contract = bundle_contract(button_bundle)

    def treat(channel: FrameChannel) -> None:
        channel.send(HELLO, 5.0)
        channel.receive(5.0)
        channel.send(Frame("contract", {"contract": contract.to_json()}), 5.0)
        channel.receive(5.0)
        if isinstance(answer, bytes):
            channel._socket.sendall(answer)
        else:
            channel.send(answer, 5.0)

    remote = RemotePolicy(impostor(treat))
    obs, noise = observations(contract, 1), noise_of(contract, 1)
    for _ in range(2):
        with pytest.raises(RemoteError) as caught:
            remote.sample(obs, noise)
        assert words in str(caught.value)


def test_absent_server_is_one_sentence() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(
        RemoteError, match=rf"No policy server answers at 127.0.0.1:{port} \(Connection refused\)"
    ):
        PolicyConnection(Address("127.0.0.1", port))
