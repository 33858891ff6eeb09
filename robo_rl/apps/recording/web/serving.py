"""The page's server in a thread of its own."""

from __future__ import annotations

import socket
import ssl
import sys
import threading
from asyncio import BaseTransport
from pathlib import Path

import uvicorn
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from robo_rl.apps.recording.requests import LONGEST
from robo_rl.apps.recording.web.server import PageServer
from robo_rl.core.errors import ConfigError

SWITCH_S = 5e-4  # longest time for which the server's Python code keeps the interpreter from the control loop
CLOSE_S = 2.0
PING_S, PONG_S = 5.0, 10.0  # a page that is asleep, or whose network is lost, counts as closed after both
UNSENT_BYTES = 65_536  # that wait in the kernel for a slow network (Linux doubles it); more would be old


def check_certificate(certificate: str | None, key: str | None) -> None:
    """Raise ConfigError for files that are no certificate with its key."""
    if certificate is None:
        if key is not None:
            raise ConfigError(f"key={key} is the key of a certificate: give certificate= as well.")
        return
    for name, file in (("certificate", certificate), ("key", key)):
        if file is not None and not Path(file).is_file():
            raise ConfigError(f"{name}={file} does not exist.")
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password="")
    except (ssl.SSLError, ValueError) as error:
        raise ConfigError(
            f"certificate={certificate} and key={key or certificate} cannot be used ({error}). Expected PEM "
            "files of a certificate and its key without a password."
        ) from error


class PageConnection(WebSocketsSansIOProtocol):
    """One page. It is lost when it answers no ping and takes nothing for PONG_S: its connection then ends at
    once, without waiting for what is unsent. A slow page, whose ping waits behind pictures, is not lost.
    """

    _taken_s = float("-inf")  # when the page last took what waited for it

    def connection_made(self, transport: BaseTransport) -> None:
        """Let no message wait behind another one in this process."""
        super().connection_made(transport)
        self.transport.set_write_buffer_limits(0)

    def resume_writing(self) -> None:
        """What waited has been taken, so that more can be sent."""
        self._taken_s = self.loop.time()
        super().resume_writing()

    def keepalive_timeout(self) -> None:
        """A ping was not answered in time."""
        left_s = self._taken_s + PONG_S - self.loop.time()
        if left_s > 0.0:
            self.pong_timer = self.loop.call_later(left_s, self.keepalive_timeout)
        else:
            self.transport.abort()


class ServerThread:
    """Serves `server` on the listening socket until `close`; by HTTPS with a certificate."""

    def __init__(
        self,
        server: PageServer,
        listener: socket.socket,
        certificate: str | None = None,
        key: str | None = None,
    ) -> None:
        sys.setswitchinterval(SWITCH_S)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, UNSENT_BYTES)  # also of its connections
        config = uvicorn.Config(
            server.app,
            ws=PageConnection,
            ws_max_size=4 * LONGEST,
            ws_ping_interval=PING_S,
            ws_ping_timeout=PONG_S,
            ws_per_message_deflate=False,
            lifespan="off",
            log_level="warning",
            access_log=False,
            timeout_graceful_shutdown=1,
            server_header=False,
            ssl_certfile=certificate,
            ssl_keyfile=key,
        )
        self._server, self._listener = uvicorn.Server(config), listener
        self._thread = threading.Thread(target=self._server.run, args=([listener],), daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the server and its connections."""
        self._server.should_exit = True
        self._thread.join(CLOSE_S)
        self._listener.close()
