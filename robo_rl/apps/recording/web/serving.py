"""The page's server in a thread of its own."""

from __future__ import annotations

import socket
import sys
import threading

import uvicorn

from robo_rl.apps.recording.requests import LONGEST
from robo_rl.apps.recording.web.server import PageServer

SWITCH_S = 5e-4  # longest time for which the server's Python code keeps the interpreter from the control loop
CLOSE_S = 2.0


class ServerThread:
    """Serves `server` on the listening socket until `close`."""

    def __init__(self, server: PageServer, listener: socket.socket) -> None:
        sys.setswitchinterval(SWITCH_S)
        config = uvicorn.Config(
            server.app,
            ws="websockets-sansio",
            ws_max_size=4 * LONGEST,
            ws_per_message_deflate=False,
            lifespan="off",
            log_level="warning",
            access_log=False,
            timeout_graceful_shutdown=1,
            server_header=False,
        )
        self._server, self._listener = uvicorn.Server(config), listener
        self._thread = threading.Thread(target=self._server.run, args=([listener],), daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the server and its connections."""
        self._server.should_exit = True
        self._thread.join(CLOSE_S)
        self._listener.close()
