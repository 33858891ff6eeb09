"""The recording cell on the real clock, with its page served to a browser."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hardware.bus.in_process import InProcessWorld
from policies.remote.address import listen
from robo_rl.apps.recording.scene import chain_of
from robo_rl.apps.recording.web.access import Access
from robo_rl.apps.recording.web.review import Review
from robo_rl.apps.recording.web.server import PageServer
from robo_rl.apps.recording.web.serving import ServerThread
from tests.apps.recording.cell import RecordingCell, make_cell


class WillingPolicy:
    """Stands for a loaded policy that is always ready, so that control can change hands without a network."""

    bundle = "runs/fake/bundle"

    def __init__(self) -> None:
        self.runner = self
        self.trials: list[tuple[bool | None, bool]] = []

    def begin(self, then: Callable[[], None], failed: Callable[[str], None]) -> None:
        then()

    def finished(self, success: bool | None, alone: bool) -> None:
        self.trials.append((success, alone))

    def tick(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""

    def view(self) -> dict[str, Any]:
        idle = {
            "state": "none",
            "command": "",
            "step": 0,
            "steps": 0,
            "loss": None,
            "left_s": None,
            "run": "",
        }
        policy = {"state": "ready", "bundle": self.bundle, "known": [self.bundle], "success": ""}
        return {"policy": policy, "training": idle}


@dataclass
class LiveCell:
    """A cell that runs in a thread; `close_server` ends the page's server as a lost network would."""

    cell: RecordingCell
    address: str
    close_server: Callable[[], None]
    faults: list[str] = field(default_factory=list)  # errors of the page's scripts

    def wait(self, condition: Callable[[], bool], longest_s: float = 10.0) -> None:
        """Wait for a condition. Raises AssertionError if it does not come true."""
        until_s = time.monotonic() + longest_s
        while not condition():
            assert time.monotonic() < until_s, "the condition did not come true in time"
            time.sleep(0.01)


def page_facts(cell: RecordingCell) -> dict[str, Any]:
    """What the page shows about the cell."""
    return {
        "robot": cell.robot.name,
        "joints": list(cell.robot.names),
        "cameras": list(cell.robot.cameras),
        "rate_hz": 20.0,
        "longest_s": 120.0,
        "out": str(cell.out),
        "drives": True,
        "resets": True,
        "gripper": False,
        "chain": chain_of(cell.robot),
    }


@contextmanager
def live_cell(out: Path, **settings: Any) -> Iterator[LiveCell]:
    """A cell with its page on a free port of this machine."""
    cell = make_cell(out, world=InProcessWorld(clock=time.monotonic), **settings)
    cell.node.autonomy = WillingPolicy()  # type: ignore[assignment]
    listener = listen("127.0.0.1", 0)
    port = listener.getsockname()[1]
    facts = page_facts(cell)
    access = Access.of("127.0.0.1", port, None, loopback=True)
    server = ServerThread(PageServer(cell.shared, access, Review(out), facts), listener)
    over = threading.Event()
    thread = threading.Thread(target=cell.world.run, args=(over.is_set,))
    thread.start()
    try:
        yield LiveCell(cell, f"http://127.0.0.1:{port}/", server.close)
    finally:
        over.set()
        thread.join()
        server.close()
        cell.node.stop("the test ends")
