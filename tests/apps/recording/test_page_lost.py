"""Pages whose network is lost without a word, or is slow: the app does not wait for them."""

from __future__ import annotations

import itertools
import json
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hardware.messages import Image
from policies.remote.address import listen
from robo_rl.apps.recording.shared_state import SharedState
from robo_rl.apps.recording.web.access import Access
from robo_rl.apps.recording.web.operators import Operators
from robo_rl.apps.recording.web.review import Review

pytest.importorskip("fastapi", reason="the page needs the extra app: pip install '.[app]'")
client = pytest.importorskip("websockets.sync.client", reason="the page needs the extra app")
SIDE_PX = 128
NOISE = np.random.default_rng(0).integers(0, 255, (8, SIDE_PX, SIDE_PX, 3), dtype=np.uint8)


class Moving(SharedState):
    """State with a new picture, and the present time in the view, whenever a page looks."""

    def __init__(self) -> None:
        self._count = itertools.count()
        self.noise, self.cameras = NOISE, ["front"]
        super().__init__()

    @property
    def view(self) -> Mapping[str, Any]:  # type: ignore[override]
        return {"at_s": time.monotonic()}

    @view.setter
    def view(self, value: Mapping[str, Any]) -> None:
        """Ignore it."""

    @property
    def pictures(self) -> Mapping[str, Image]:  # type: ignore[override]
        count = next(self._count)
        picture = Image(float(count), self.noise[count % len(self.noise)])
        return dict.fromkeys(self.cameras, picture)

    @pictures.setter
    def pictures(self, value: Mapping[str, Image]) -> None:
        """Ignore it."""


@dataclass
class Served:
    """A server, and its state. Pages have small buffers: what they do not read waits in the server."""

    port: int
    shared: Moving
    operators: Operators

    def page(self, name: str) -> Any:
        link = socket.socket()
        link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
        link.connect(("127.0.0.1", self.port))
        address = f"ws://localhost:{self.port}/socket?page={name}"
        return client.connect(address, sock=link, max_size=None, max_queue=1, close_timeout=0.1)

    def asked(self) -> list[str]:
        return [request.kind for request, _ in self.shared.requests()]


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    from robo_rl.apps.recording.web import server, serving

    monkeypatch.setattr(server, "STUCK_S", 0.5)
    monkeypatch.setattr(serving, "PING_S", 0.2)
    monkeypatch.setattr(serving, "PONG_S", 0.5)
    monkeypatch.setattr(server, "GRACE_S", 0.3)
    monkeypatch.setattr("robo_rl.apps.recording.web.operators.GRACE_S", 0.3)
    monkeypatch.setattr(server, "PAGE_FPS", 200.0)
    listener, shared = listen("127.0.0.1", 0), Moving()
    port = listener.getsockname()[1]
    access = Access.of("127.0.0.1", port, None, loopback=True)
    facts = {"cameras": shared.cameras}
    pages = server.PageServer(shared, access, Review(tmp_path), facts)
    thread = serving.ServerThread(pages, listener)
    yield Served(port, shared, pages.operators)
    thread.close()


def view_of(page: Any, seen: Callable[[dict[str, Any]], bool] = lambda view: True) -> dict[str, Any]:
    """The next view for which `seen` holds."""
    until_s = time.monotonic() + 10.0
    while time.monotonic() < until_s:
        text = page.recv(timeout=10.0)
        if isinstance(text, str) and seen(view := json.loads(text)):
            return dict(view)
    raise AssertionError("no such view came")


def read_until(page: Any, enough: threading.Event) -> None:
    while not enough.is_set():
        page.recv(timeout=10.0)


def wait_for(seen: Callable[[], bool]) -> None:
    until_s = time.monotonic() + 10.0
    while not seen():
        assert time.monotonic() < until_s
        time.sleep(0.01)


@contextmanager
def raw_page(port: int) -> Iterator[socket.socket]:
    """A page that answers nothing, by hand."""
    with socket.socket() as link:
        link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
        link.connect(("127.0.0.1", port))
        link.sendall(
            f"GET /socket?page=page-0001 HTTP/1.1\r\nHost: localhost:{port}\r\nUpgrade: websocket\r\n"
            "Connection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
            "Sec-WebSocket-Version: 13\r\n\r\n".encode()
        )
        yield link


def role(wanted: str) -> Callable[[dict[str, Any]], bool]:
    return lambda view: view["operators"]["role"] == wanted


def test_the_controls_of_a_page_that_takes_nothing_go_to_the_page_that_asked(served: Served) -> None:
    """A computer that sleeps closes no connection: the page kept the controls, and the policy went on, until
    the system gave the connection up, after a quarter of an hour.
    """
    with served.page("page-0001") as lost:
        view_of(lost, role("driver"))
        with ThreadPoolExecutor(1) as thread, served.page("page-0002") as other:
            awake = threading.Event()
            reading = thread.submit(read_until, lost, awake)
            view_of(other, role("watcher"))
            awake.set()
            reading.result()
            other.send('{"kind": "ask"}')
            view_of(other, role("driver"))
            assert served.asked() == ["release"]


def test_a_policy_is_stopped_where_no_page_takes_anything(served: Served) -> None:
    """The policy stops as it does when its operator closes the page."""
    with served.page("page-0001") as lost:
        view_of(lost, role("driver"))
        asked, until_s = [], time.monotonic() + 10.0
        while "abandon" not in asked:
            asked += served.asked()
            assert time.monotonic() < until_s
            time.sleep(0.01)
        assert asked == ["release", "abandon"]


def test_a_page_that_comes_back_does_not_wait_for_its_lost_connection(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new page showed nothing while the server waited for the old connection to close."""
    monkeypatch.setattr("robo_rl.apps.recording.web.server.STUCK_S", 60.0)
    with served.page("page-0001") as lost:
        view_of(lost, role("driver"))
        time.sleep(0.5)  # its buffers fill
        with served.page("page-0001") as again:
            view_of(again, role("driver"))


def test_what_a_slow_page_shows_is_new(served: Served) -> None:
    """At 0.4 MB/s views were ever older, up to many seconds, as the system keeps megabytes for a link."""
    with served.page("page-0001") as slow:
        began_s, got, ages_s = time.monotonic(), 0, []
        while time.monotonic() - began_s < 2.5:
            message = slow.recv(timeout=10.0)
            got += len(message)
            time.sleep(max(0.0, began_s + got / 4e5 - time.monotonic()))
            if isinstance(message, str) and time.monotonic() - began_s > 1.5:
                ages_s.append(time.monotonic() - json.loads(message)["at_s"])
    assert min(ages_s) < 1.2


@pytest.mark.parametrize("cameras", [[], ["front"]])
def test_a_page_that_answers_no_ping_is_closed_at_once(
    served: Served, monkeypatch: pytest.MonkeyPatch, cameras: list[str]
) -> None:
    """Views alone fill no buffer for a long time; what is unsent delayed the end by many seconds."""
    monkeypatch.setattr("robo_rl.apps.recording.web.server.STUCK_S", 60.0)
    served.shared.cameras[:] = cameras
    with raw_page(served.port):
        wait_for(lambda: served.operators.drives("page-0001"))
        began_s = time.monotonic()
        wait_for(lambda: "release" in served.asked())
        assert 0.4 < time.monotonic() - began_s < 2.5


def test_a_slow_page_that_takes_what_is_sent_stays(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """One limit for a view and all pictures dropped it, and a ping waits behind the pictures."""
    monkeypatch.setattr("robo_rl.apps.recording.web.server.STUCK_S", 1.0)
    monkeypatch.setattr("robo_rl.apps.recording.web.serving.PONG_S", 1.0)
    served.shared.cameras += ["left", "right", "wrist", "top"]
    served.shared.noise = np.random.default_rng(0).integers(0, 255, (2, 200, 200, 3), dtype=np.uint8)
    with raw_page(served.port) as link:
        wait_for(lambda: served.operators.drives("page-0001"))
        began_s, got = time.monotonic(), 0
        while time.monotonic() - began_s < 2.8:
            part = link.recv(8192)
            assert part
            got += len(part)
            time.sleep(max(0.0, began_s + got / 1e5 - time.monotonic()))
        assert not served.asked()


def test_a_picture_that_cannot_be_encoded_keeps_no_controls(
    served: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An error in the page's task used to leave the controls with it, and the policy went on."""
    monkeypatch.setattr(logging.getLogger("uvicorn"), "propagate", True)
    served.shared.noise = np.zeros((1, 0, 0, 3), np.uint8)
    with raw_page(served.port):
        wait_for(lambda: "release" in served.asked())
        wait_for(lambda: "abandon" in served.asked())
    assert "cv2.error" in caplog.text
