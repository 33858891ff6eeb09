"""The page's server: what it serves, whom it lets in, who drives, and what it refuses."""

from __future__ import annotations

import asyncio
import json
import shutil
import ssl
import subprocess
from collections.abc import Callable
from http.client import HTTPSConnection
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hardware.messages import Image
from robo_rl.apps.recording.requests import DriveRequest, EstopRequest, PlainRequest, parse_request
from robo_rl.apps.recording.shared_state import SharedState
from robo_rl.apps.recording.web.access import Access
from robo_rl.apps.recording.web.operators import GRACE_S, Operators
from robo_rl.apps.recording.web.review import Review
from robo_rl.core.errors import ConfigError
from tests.apps.recording.cell import make_cell

testclient = pytest.importorskip(
    "fastapi.testclient", reason="the page needs the extra app: pip install '.[app]'"
)
WebSocketDisconnect = pytest.importorskip("fastapi").WebSocketDisconnect
HOST = {"host": "localhost:8642"}
TOKEN = "a-token-of-the-right-length"
FACTS = {"cameras": ["front", "wrist"], "robot": "small"}


@pytest.fixture
def shared() -> SharedState:
    made = SharedState()
    made.view = {"episode": {"version": 0}}
    made.pictures = {"front": Image(1.0, np.zeros((8, 8, 3), np.uint8))}
    return made


@pytest.fixture
def client(shared: SharedState, tmp_path: Path) -> Callable[..., Any]:
    def make(token: str | None = None) -> Any:
        from robo_rl.apps.recording.web.server import PageServer

        access = Access.of("127.0.0.1", 8642, token, loopback=True)
        server = PageServer(shared, access, Review(tmp_path), FACTS)
        return testclient.TestClient(server.app, "http://localhost:8642", follow_redirects=False)

    return make


def next_text(socket: Any) -> dict[str, Any]:
    """Next JSON message; pictures are skipped."""
    while "text" not in (message := socket.receive()):
        pass
    found: dict[str, Any] = json.loads(message["text"])
    return found


def wait_for(socket: Any, key: str, value: object) -> None:
    """Read until a view says so about the operators."""
    while next_text(socket).get("operators", {}).get(key) != value:
        pass


def test_the_page_is_complete_and_loads_nothing_from_elsewhere(client: Callable[..., Any]) -> None:
    """Every file that a file names is there; none names another server."""
    page = client()
    names, seen = ["index.html", "phone.html"], set[str]()
    while names:
        name = names.pop()
        seen.add(name)
        answer = page.get("/" if name == "index.html" else f"/{name}")
        assert answer.status_code == 200, name
        own = answer.text.replace("http://www.w3.org/2000/svg", "").replace("http://localhost:", "")
        assert "http://" not in own, name
        assert "https://" not in answer.text
        named = [
            word
            for word in answer.text.replace("./", "").split('"')
            if word.endswith((".js", ".css", ".svg"))
        ]
        names += [word for word in named if word not in seen]
    assert {
        "app.js",
        "drive.js",
        "phone.js",
        "xr.js",
        "picture.js",
        "phone.css",
        "style.css",
        "icon.svg",
    } <= seen
    assert "default-src 'self'" in page.get("/").headers["content-security-policy"]
    assert page.get("/secrets.txt").status_code == 404
    assert page.get("/..%2fserver.py").status_code == 404


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"host": "127.0.0.1:8642"}, 200),
        ({"host": "evil.example:8642"}, 403),  # a foreign name that leads here: DNS rebinding
        ({"host": "localhost:1"}, 403),
        ({"origin": "http://localhost:8642"}, 200),
        ({"origin": "http://evil.example"}, 403),
    ],
)
def test_foreign_names_and_pages_are_refused(
    client: Callable[..., Any], headers: dict[str, str], status: int
) -> None:
    """No other website can read the page or drive the robot through a visitor's browser."""
    assert client().get("/api/facts", headers=HOST | headers).status_code == status


def test_a_token_is_asked_for_once_and_kept_in_a_cookie(client: Callable[..., Any]) -> None:
    """Without it there is only the form; scripts cannot read the cookie, other sites cannot send it."""
    page = client(TOKEN)
    assert page.get("/api/facts").status_code == 401
    assert '<p hidden class="wrong"' in page.get("/").text
    wrong = page.post("/phone", content=f"token={TOKEN}x")
    assert wrong.status_code == 401
    assert '<p class="wrong"' in wrong.text
    with (
        pytest.raises(WebSocketDisconnect),
        page.websocket_connect("/socket?page=page-0001"),
    ):
        pass
    answer = page.post("/phone", content=f"token={TOKEN}\r\n")
    assert answer.status_code == 303
    assert "HttpOnly" in answer.headers["set-cookie"]
    assert "samesite=strict" in answer.headers["set-cookie"].lower()
    assert page.get("/api/facts").json() == FACTS


def test_apps_of_one_host_have_their_own_cookies(shared: SharedState, tmp_path: Path) -> None:
    """Browsers send a cookie to every port of a host: the second login would end the first one."""
    from robo_rl.apps.recording.web.server import PageServer

    cookies = list[str]()
    for port in (8642, 8643):
        access = Access.of("127.0.0.1", port, TOKEN, loopback=True)
        server = PageServer(shared, access, Review(tmp_path), FACTS)
        page = testclient.TestClient(server.app, f"http://localhost:{port}", follow_redirects=False)
        cookies.append(page.post("/", content=f"token={TOKEN}").headers["set-cookie"].split("=")[0])
        assert page.get("/api/facts").status_code == 200
    assert cookies[0] != cookies[1]


def test_a_long_form_is_not_read_to_its_end(client: Callable[..., Any]) -> None:
    """Somebody without the token would fill the memory of the robot's computer: 2 KB are read, not 100 MB."""
    page, parts, statuses = client(TOKEN), [True] * 1599 + [False], list[int]()

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"a" * 65_536, "more_body": parts.pop(0)}

    async def send(message: dict[str, Any]) -> None:
        statuses.extend([message["status"]] if "status" in message else [])

    scope = {"type": "http", "method": "POST", "path": "/", "query_string": b"", "headers": []}
    scope |= {"headers": [(b"host", b"localhost:8642")], "http_version": "1.1", "scheme": "http"}
    asyncio.run(page.app(scope, receive, send))
    assert statuses == [401]
    assert len(parts) > 1590


def test_the_phone_page_asks_for_the_token_and_comes_back(client: Callable[..., Any]) -> None:
    """A phone that opens /phone gets the form there, and then its page and not the other one."""
    page = client(TOKEN)
    assert page.get("/phone").status_code == 401
    answer = page.post("/phone", content=f"token={TOKEN}")
    assert (answer.status_code, answer.headers["location"]) == (303, "/phone")
    assert "phone.js" in page.get("/phone").text


def test_unusable_certificates_are_named(tmp_path: Path) -> None:
    """A sentence before anything is served, not an error of a thread."""
    from robo_rl.apps.recording.web.serving import check_certificate

    wrong = tmp_path / "cert.pem"
    wrong.write_text("no certificate")
    check_certificate(None, None)
    for certificate, key, says in (
        (None, "key.pem", "give certificate= as well"),
        (str(tmp_path / "absent.pem"), None, "does not exist"),
        (str(wrong), None, "cannot be used"),
    ):
        with pytest.raises(ConfigError, match=says):
            check_certificate(certificate, key)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
def test_the_page_is_served_by_https(shared: SharedState, tmp_path: Path) -> None:
    """With a certificate, and a cookie that is sent by HTTPS alone."""
    from policies.remote.address import listen
    from robo_rl.apps.recording.web.server import PageServer
    from robo_rl.apps.recording.web.serving import ServerThread, check_certificate

    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    made = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost"
    words = ["openssl", *made.split(), "-addext", "subjectAltName=DNS:localhost"]
    subprocess.run([*words, "-keyout", key, "-out", cert], check=True, capture_output=True)
    check_certificate(str(cert), str(key))
    listener = listen("127.0.0.1", 0)
    port = listener.getsockname()[1]
    access = Access.of("127.0.0.1", port, TOKEN, loopback=True, secure=True)
    server = ServerThread(PageServer(shared, access, Review(tmp_path), FACTS), listener, str(cert), str(key))
    try:
        link = HTTPSConnection("localhost", port, context=ssl.create_default_context(cafile=cert), timeout=10)
        link.request("POST", "/phone", f"token={TOKEN}")
        answer = link.getresponse()
        assert (answer.status, "Secure" in answer.headers["set-cookie"]) == (303, True)
        link.close()
    finally:
        server.close()


def test_a_socket_gets_views_and_pictures_and_sends_requests(
    client: Callable[..., Any], shared: SharedState
) -> None:
    """A lost page releases the arm."""
    with client().websocket_connect("/socket?page=page-0001", headers=HOST) as socket:
        view = json.loads(socket.receive_text())
        assert view["operators"]["role"] == "driver"
        assert socket.receive_bytes()[:3] == b"\x00\xff\xd8"  # camera 0, a JPEG
        socket.send_text('{"kind": "start"}')
        socket.send_text('{"kind": "drive", "mode": "tool", "values": [2, 0, 0, 0, 0, 0]}')
        while "refused" not in (answer := next_text(socket)):
            pass
        assert "values" in answer["refused"]
    assert [getattr(request, "kind", "") for request, _ in shared.requests()] == ["start", "release"]


def test_the_second_page_watches_but_may_stop_the_arm(
    client: Callable[..., Any], shared: SharedState
) -> None:
    """Two operators: one drives, the other asks; an emergency stop is anybody's."""
    page = client()
    with (
        page.websocket_connect("/socket?page=page-0001", headers=HOST) as first,
        page.websocket_connect("/socket?page=page-0002", headers=HOST) as second,
    ):
        assert next_text(second)["operators"]["role"] == "watcher"
        second.send_text('{"kind": "start"}')
        second.send_text('{"kind": "estop", "on": true}')
        second.send_text('{"kind": "ask"}')
        wait_for(first, "asked", True)
        first.send_text('{"kind": "hand_over"}')
        wait_for(second, "role", "driver")
    found = [request for request, _ in shared.requests()]
    assert found[:2] == [EstopRequest(kind="estop", on=True), PlainRequest(kind="release")]


def until_closed(socket: Any) -> tuple[int, str]:
    """Code and reason with which the server ends a socket."""
    while (message := socket.receive())["type"] != "websocket.close":
        pass
    return message["code"], message["reason"]


def test_a_second_socket_of_a_page_replaces_the_first(
    client: Callable[..., Any], shared: SharedState
) -> None:
    """A duplicated tab has the name of the first one; both had the controls, and drove against each other."""
    page = client()
    with page.websocket_connect("/socket?page=page-0001", headers=HOST) as first:
        wait_for(first, "role", "driver")
        with page.websocket_connect("/socket?page=page-0001", headers=HOST) as second:
            wait_for(second, "role", "driver")
            assert until_closed(first) == (4001, "open in another tab")
            first.send_text('{"kind": "start"}')
            second.send_text('{"kind": "arm"}')
            second.send_text("x")
            while "refused" not in next_text(second):
                pass
            assert [getattr(each, "kind", "") for each, _ in shared.requests()] == ["release", "arm"]


def test_bytes_end_a_socket(client: Callable[..., Any]) -> None:
    """Without an error in the server."""
    with client().websocket_connect("/socket?page=page-0001", headers=HOST) as socket:
        socket.send_bytes(b"x")
        assert until_closed(socket) == (1003, "text was expected")


def test_controls_come_back_after_a_reload_and_are_free_after_a_while() -> None:
    """The page's name survives a reload; nobody takes the controls within the first seconds."""
    now = [0.0]
    operators = Operators(lambda: now[0])
    operators.join("first")
    operators.join("second")
    assert operators.leave("first")
    operators.ask("second")
    assert not operators.drives("second")
    operators.join("first")
    assert operators.drives("first")
    operators.keep("first")
    operators.leave("first")
    now[0] += GRACE_S + 0.1
    assert operators.view("second")["role"] == "driver"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"kind": "explode"}',
        '{"kind": "start", "more": 1}',
        '{"kind": "drive", "mode": "tool", "values": [NaN]}',
        '{"kind": "drive", "mode": "tool", "values": ["1"]}',
        '{"kind": "save", "success": 1}',
        '{"kind": "instruct", "text": "' + "x" * 20_000 + '"}',
    ],
)
def test_messages_that_no_page_sends_are_refused(text: str) -> None:
    """Each with a sentence; strict types, finite numbers, no unknown keys, a longest length."""
    with pytest.raises(ConfigError, match="message"):
        parse_request(text)


def test_a_drive_message_is_parsed() -> None:
    request = parse_request('{"kind": "drive", "mode": "joints", "values": [1, -0.5], "sent_ms": 3.5}')
    assert request == DriveRequest(kind="drive", mode="joints", values=[1, -0.5], sent_ms=3.5)


def test_episodes_are_reviewed(tmp_path: Path) -> None:
    """A row with length and label, a picture of any frame, curves; a frame that is not there is refused."""
    cell = make_cell(tmp_path / "data", task="push")
    cell.ask(kind="start")
    cell.drive(0.5)
    cell.ask(kind="save", success=False)
    review = Review(cell.out)
    (row,) = review.episodes(1)
    assert (row["number"], row["success"], row["task"]) == (0, False, "push")
    assert review.picture(0, "wrist", row["frames"])[:2] == b"\xff\xd8"
    assert len(review.curves(0)["state"]) == row["frames"]
    for camera, frame in (("wrist", 10_000), ("other", 0)):
        with pytest.raises(Exception, match=r"no camera|there is none"):
            review.picture(0, camera, frame)
