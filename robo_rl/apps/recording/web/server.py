"""The page's server: files, reviews, and a socket for views and requests. It never waits for the bus."""

from __future__ import annotations

import asyncio
import json
import re
import struct
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from importlib.resources import files
from typing import Any

from fastapi import FastAPI, Request, Response, WebSocket, WebSocketDisconnect
from fastapi.responses import JSONResponse, RedirectResponse

from hardware.camera.jpeg import encoded
from hardware.messages import Image
from robo_rl.apps.recording.requests import ControlsRequest, EstopRequest, PlainRequest, parse_request
from robo_rl.apps.recording.shared_state import SharedState
from robo_rl.apps.recording.web.access import Access
from robo_rl.apps.recording.web.operators import GRACE_S, Operators
from robo_rl.apps.recording.web.review import Review
from robo_rl.core.errors import ConfigError, DataError, RoboRLError

PAGE_FPS = 20.0
QUALITY = 80
LONGEST_FORM = 2048  # bytes of the token's form
REPLACED = 4001  # code with which a socket ends whose page has opened another one
STUCK_S = 15.0  # a page that takes no message for this time is gone; a slow one takes 10 kB/s or more
MOST_PER_S = 150  # messages of one page; a page sends 30 while it drives
ENDS = (asyncio.CancelledError, asyncio.TimeoutError, WebSocketDisconnect, RuntimeError)  # of a socket
PAGE = re.compile(r"[A-Za-z0-9-]{8,64}")
FILES = {
    "index.html": "text/html; charset=utf-8",
    "phone.html": "text/html; charset=utf-8",
    "login.html": "text/html; charset=utf-8",
    "phone.css": "text/css; charset=utf-8",
    "style.css": "text/css; charset=utf-8",
    "icon.svg": "image/svg+xml",
}
PAGES = {"/": "index.html", "/phone": "phone.html"}
SCRIPT = re.compile(r"[a-z_]+\.js")
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'self'; img-src 'self' blob: data:; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",  # without a referrer, browsers send the token's form with origin "null"
}
Next = Callable[[Request], Awaitable[Response]]


class PageServer:
    """One server for all pages. facts: what does not change while the app runs."""

    def __init__(self, shared: SharedState, access: Access, review: Review, facts: Mapping[str, Any]) -> None:
        self._shared, self._access, self._review, self._facts = shared, access, review, facts
        self.operators = Operators()
        self._sockets: dict[str, WebSocket] = {}  # newest one of each page
        self._jpegs: dict[str, tuple[Image, bytes]] = {}  # newest picture of each camera, encoded once
        self.app = self._routes()

    def _routes(self) -> FastAPI:
        app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)

        @app.middleware("http")
        async def guard(request: Request, call_next: Next) -> Response:
            path = request.url.path
            login = path in ("/style.css", "/icon.svg") or (request.method == "POST" and path in PAGES)
            fault = self._access.foreign(request.headers)
            if fault:
                return JSONResponse({"error": fault}, 403, HEADERS)
            if not login and self._access.refusal(request.headers, request.cookies):
                return _file("login.html", 401)
            response = await call_next(request)
            response.headers.update(HEADERS)
            return response

        @app.exception_handler(RoboRLError)
        async def explain(request: Request, error: Exception) -> Response:
            return JSONResponse({"error": str(error)}, 404 if isinstance(error, DataError) else 400)

        for path, name in PAGES.items():
            app.get(path)(_page(name))
            app.post(path)(self._login)
        app.get("/api/facts")(lambda: dict(self._facts))
        app.get("/api/scene")(lambda: {"shapes": self._shared.shapes})
        app.get("/api/episodes")(self._episodes)
        app.get("/api/episodes/{number}/curves")(self._curves)
        app.get("/api/episodes/{number}/{camera}/{frame}.jpg")(self._picture)
        app.get("/{name}")(_named)
        app.websocket("/socket")(self._socket)
        return app

    async def _login(self, request: Request) -> Response:
        """Exchange the token for a cookie that scripts cannot read and other sites cannot use."""
        given = (await _form(request)).decode(errors="replace").strip().removeprefix("token=")
        if not self._access.knows(given):
            return _file("login.html", 401, show=b"wrong")
        response = RedirectResponse(request.url.path, 303)
        response.set_cookie(
            self._access.cookie, given, httponly=True, samesite="strict", secure=self._access.secure
        )
        return response

    def _episodes(self) -> dict[str, Any]:
        count = self._shared.view.get("episode", {}).get("version", 0)
        return {"episodes": self._review.episodes(count), "undo": self._review.can_undo}

    def _curves(self, number: int) -> dict[str, Any]:
        return self._review.curves(number)

    def _picture(self, number: int, camera: str, frame: int) -> Response:
        return Response(self._review.picture(number, camera, frame), media_type="image/jpeg")

    async def _socket(self, socket: WebSocket) -> None:
        """Views and pictures out, requests in, until either side ends."""
        page = socket.query_params.get("page", "")
        if self._access.refusal(socket.headers, socket.cookies) or not PAGE.fullmatch(page):
            await socket.close(1008)
            return
        await socket.accept()
        self.operators.join(page)
        replaced = self._sockets.get(page)
        self._sockets[page] = socket
        tasks = [
            asyncio.create_task(self._send(socket, page)),
            asyncio.create_task(self._receive(socket, page)),
        ]
        if replaced is not None:  # a tab that was duplicated has the name of the first one
            self._shared.ask(PlainRequest(kind="release"))
            tasks.append(asyncio.create_task(_replace(replaced)))  # beside them: its network may be lost
        try:
            await asyncio.wait(tasks[:2], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()  # before its next step, so that it asks for nothing more
            # Nothing is awaited before this, because the server's end cancels this task too.
            if self._sockets.get(page) is socket:
                del self._sockets[page]
            if self.operators.leave(page):
                self._shared.ask(PlainRequest(kind="release"))
                asyncio.get_running_loop().call_later(GRACE_S + 0.1, self._stop_if_abandoned)
        outcomes: list[BaseException | None] = []
        with suppress(asyncio.CancelledError):
            outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, RecursionError) or not isinstance(outcome, (*ENDS, type(None))):
                raise outcome

    def _stop_if_abandoned(self) -> None:
        """Stop a policy whose operator did not come back."""
        if self.operators.vacant:
            self._shared.ask(PlainRequest(kind="abandon"))

    async def _receive(self, socket: WebSocket, page: str) -> None:
        second, count = 0, 0
        while True:
            message = await socket.receive()
            if message["type"] == "websocket.disconnect" or self._sockets.get(page) is not socket:
                return
            text = message.get("text")
            if text is None:
                await socket.close(1003, "text was expected")
                return
            now = int(time.monotonic())
            second, count = now, count + 1 if now == second else 1
            if count > MOST_PER_S:
                await socket.close(1008, "too many messages")
                return
            if fault := self._take(text, page):
                await _in_time(socket.send_text(json.dumps({"refused": fault})))

    def _take(self, text: str, page: str) -> str:
        """Hand a request of a page to the node. Returns why it was refused, else ""."""
        try:
            request = parse_request(text)
        except ConfigError as error:
            return str(error)
        if isinstance(request, ControlsRequest):
            self._change_hands(request, page)
            return ""
        danger = isinstance(request, EstopRequest) and request.on
        if not self.operators.drives(page) and not danger:  # whoever sees a danger may stop the arm
            return "You are watching. Ask for the controls first."
        if not self._shared.ask(request, danger or request.kind in ("release", "stop")):
            return "The app is too busy; the request was dropped."
        return ""

    def _change_hands(self, request: ControlsRequest, page: str) -> None:
        before = self.operators.driver
        if request.kind == "ask":
            self.operators.ask(page)
        elif request.kind == "hand_over":
            self.operators.hand_over(page)
        else:
            self.operators.keep(page)
        if self.operators.driver != before:
            self._shared.ask(PlainRequest(kind="release"))

    async def _send(self, socket: WebSocket, page: str) -> None:
        """Send what is newest, as fast as this page takes it: a slow one misses views, and delays nobody.

        Raises asyncio.TimeoutError once the page has taken no message for STUCK_S.
        """
        shown: dict[str, Image] = {}
        while True:
            began_s = time.monotonic()
            await self._send_newest(socket, page, shown)
            await asyncio.sleep(max(0.001, began_s + 1.0 / PAGE_FPS - time.monotonic()))

    async def _send_newest(self, socket: WebSocket, page: str, shown: dict[str, Image]) -> None:
        view = self._shared.view
        if view:
            text = json.dumps({**view, "operators": self.operators.view(page)})
            await _in_time(socket.send_text(text))
        for number, camera in enumerate(self._facts["cameras"]):
            picture = self._shared.pictures.get(camera)
            if picture is not None and shown.get(camera) is not picture:
                shown[camera] = picture
                jpeg = self._jpeg(camera, picture)
                await _in_time(socket.send_bytes(struct.pack("<B", number) + jpeg))

    def _jpeg(self, camera: str, picture: Image) -> bytes:
        known = self._jpegs.get(camera)
        if known is None or known[0] is not picture:
            known = self._jpegs[camera] = (picture, encoded(picture.pixels, QUALITY).tobytes())
        return known[1]


async def _in_time(sent: Awaitable[None]) -> None:
    """Wait until the page takes a message. Raises asyncio.TimeoutError after STUCK_S."""
    await asyncio.wait_for(sent, STUCK_S)


async def _replace(socket: WebSocket) -> None:
    """End a socket whose page has opened another one."""
    with suppress(RuntimeError, asyncio.TimeoutError):
        await _in_time(socket.close(REPLACED, "open in another tab"))


async def _form(request: Request) -> bytes:
    """Beginning of a form, of at most `LONGEST_FORM` bytes: whoever sends it may not have the token."""
    found = b""
    async for part in request.stream():
        found += part[:LONGEST_FORM]
        if len(found) >= LONGEST_FORM:
            break
    return found[:LONGEST_FORM]


def _page(name: str) -> Callable[[], Response]:
    return lambda: _file(name)


def _named(name: str) -> Response:
    if name not in FILES and not SCRIPT.fullmatch(name):
        return JSONResponse({"error": "There is no such page."}, 404)
    return _file(name)


def _file(name: str, status: int = 200, show: bytes = b"") -> Response:
    """A file of the page. show: class of an element that is hidden in the file and is to be shown."""
    place = files("robo_rl.apps.recording.web") / "page" / name
    if not place.is_file():
        return JSONResponse({"error": "There is no such page."}, 404, HEADERS)
    kind = FILES.get(name, "text/javascript; charset=utf-8")
    text = place.read_bytes()
    if show:
        text = text.replace(b'hidden class="%s"' % show, b'class="%s"' % show)
    return Response(text, status, HEADERS, kind)
