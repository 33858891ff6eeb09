"""Pages whose network is lost without a word, or is slow: the app does not wait for them."""

from __future__ import annotations

import itertools
import json
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hardware.messages import Image
from policies.remote.address import listen
from robo_rl.apps.recording.shared_state import SharedState
from robo_rl.apps.recording.web.access import Access
from robo_rl.apps.recording.web.review import Review

pytest.importorskip("fastapi", reason="the page needs the extra app: pip install '.[app]'")
client = pytest.importorskip("websockets.sync.client", reason="the page needs the extra app")
SIDE_PX = 128
NOISE = np.random.default_rng(0).integers(0, 255, (8, SIDE_PX, SIDE_PX, 3), dtype=np.uint8)


class Moving(SharedState):
    """State with a new picture, and the present time in the view, whenever a page looks."""

    def __init__(self) -> None:
        self._count = itertools.count()
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
        return {"front": Image(float(count), NOISE[count % len(NOISE)])}

    @pictures.setter
    def pictures(self, value: Mapping[str, Image]) -> None:
        """Ignore it."""


@dataclass
class Served:
    """A server, and its state. Pages have small buffers: what they do not read waits in the server."""

    port: int
    shared: Moving

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
    monkeypatch.setattr(server, "GRACE_S", 0.3)
    monkeypatch.setattr("robo_rl.apps.recording.web.operators.GRACE_S", 0.3)
    monkeypatch.setattr(server, "PAGE_FPS", 200.0)
    listener, shared = listen("127.0.0.1", 0), Moving()
    port = listener.getsockname()[1]
    access = Access.of("127.0.0.1", port, None, loopback=True)
    facts = {"cameras": ["front"]}
    thread = serving.ServerThread(server.PageServer(shared, access, Review(tmp_path), facts), listener)
    yield Served(port, shared)
    thread.close()


def view_of(page: Any, seen: Callable[[dict[str, Any]], bool] = lambda view: True) -> dict[str, Any]:
    """The next view for which `seen` holds."""
    until_s = time.monotonic() + 10.0
    while time.monotonic() < until_s:
        text = page.recv(timeout=10.0)
        if isinstance(text, str) and seen(view := json.loads(text)):
            return dict(view)
    raise AssertionError("no such view came")


def role(wanted: str) -> Callable[[dict[str, Any]], bool]:
    return lambda view: view["operators"]["role"] == wanted


def test_the_controls_of_a_page_that_takes_nothing_go_to_who_asked(served: Served) -> None:
    """A computer that sleeps closes no connection: the page kept the controls, and the policy went on, until
    the system gave the connection up, after a quarter of an hour.
    """
    with served.page("page-0001") as lost:
        view_of(lost, role("driver"))
        with served.page("page-0002") as other:
            view_of(other, role("watcher"))
            other.send('{"kind": "ask"}')
            view_of(other, role("driver"))
            assert served.asked() == ["release"]


def test_a_policy_is_stopped_where_no_page_takes_anything(served: Served) -> None:
    """As for a page that was closed."""
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
    """It showed nothing, because the server waited for the close of a connection that took nothing."""
    monkeypatch.setattr("robo_rl.apps.recording.web.server.STUCK_S", 60.0)
    with served.page("page-0001") as lost:
        view_of(lost, role("driver"))
        time.sleep(0.5)  # its buffers fill
        with served.page("page-0001") as again:
            view_of(again, role("driver"))


def test_what_a_slow_page_shows_is_new(served: Served) -> None:
    """At 0.4 MB/s views were ever older, up to many seconds, as the system keeps megabytes for a link."""
    with served.page("page-0001") as slow:
        began_s, got = time.monotonic(), 0
        while time.monotonic() - began_s < 2.5:
            message = slow.recv(timeout=10.0)
            got += len(message)
            time.sleep(max(0.0, began_s + got / 4e5 - time.monotonic()))
            if isinstance(message, str):
                age_s = time.monotonic() - json.loads(message)["at_s"]
    assert age_s < 1.2
