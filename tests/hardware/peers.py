"""Fake robots: processes that speak the robots' own protocols over loopback.

They read orders from stdin, one per line, and report events as JSON lines {"event": ..., "t": seconds}.
"""

from __future__ import annotations

import itertools
import json
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
_counter = itertools.count()


def own_address() -> str:
    """A loopback address that no other test uses: some protocols have fixed ports."""
    pid, i = os.getpid(), next(_counter)
    return f"127.{1 + (pid >> 8) % 250}.{pid % 256}.{1 + i % 250}"


def free_port(kind: socket.SocketKind = socket.SOCK_STREAM) -> int:
    with socket.socket(socket.AF_INET, kind) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Peer:
    """A process of `python -m tests.hardware.<module> <arguments>`, from its "ready" on."""

    def __init__(self, module: str, *arguments: str) -> None:
        self.events: list[dict[str, Any]] = []
        self._news = threading.Condition()
        self.process = subprocess.Popen(
            [sys.executable, "-m", f"tests.hardware.{module}", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.wait("ready", 20.0)

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.kill()
        self.process.wait()
        self._reader.join(5.0)
        self.process.stdin.close()
        self.process.stdout.close()

    def order(self, text: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()

    def wait(self, event: str, timeout_s: float = 5.0, after_s: float = 0.0) -> dict[str, Any]:
        """The first event of this kind after that time; fails with what happened instead."""
        deadline_s = time.monotonic() + timeout_s
        with self._news:
            while True:
                if found := self.all(event, after_s):
                    return found[0]
                left_s = deadline_s - time.monotonic()
                assert left_s > 0.0, f"no '{event}' within {timeout_s} s, but {self.events[-12:]}"
                assert self.process.poll() is None or self._reader.is_alive(), (
                    f"it ended: {self.events[-12:]}"
                )
                self._news.wait(min(left_s, 0.2))

    def all(self, event: str, after_s: float = 0.0) -> list[dict[str, Any]]:
        return [each for each in self.events if each["event"] == event and each["t"] >= after_s]

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("{"):
                with self._news:
                    self.events.append(json.loads(line))
                    self._news.notify_all()
