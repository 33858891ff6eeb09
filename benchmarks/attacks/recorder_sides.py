"""The two sides of the attack of the recorder: a robot that publishes numbered messages, and the recorder."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from attacks.recorder_oracle import EVERY, NAMES, PICTURES, STAMPS_HZ, TASK, pixels, positions
from hardware import messages as m
from hardware import topics as t
from hardware.bus.dds.bus import DdsBus

ROOT = Path(__file__).resolve().parents[2]
RATE_HZ = 100.0


class Sender:
    """Publishes numbered messages and keeps the recorder's answers, each with the next number."""

    def __init__(self, bus: DdsBus) -> None:
        self.bus, self.next, self.quiet = bus, 0, False
        self.sent_s: list[float] = []  # by number
        self.answers: list[str] = []  # since the last request
        self._state, self._command = t.JOINT_STATES.publisher(bus), t.SAFE.publisher(bus)
        self._picture, self.ask = t.image_topic("top").publisher(bus), t.RECORDER_REQUEST.publisher(bus)
        t.TASK.publisher(bus)(m.Text(TASK))
        t.EPISODE.subscribe(bus, lambda text, _: self.answers.append(text.text))
        bus.timer(1.0 / RATE_HZ, self._send)

    def _send(self) -> None:
        if self.quiet:
            return
        number, stamp_s, self.next = self.next, self.next / STAMPS_HZ, self.next + 1
        nothing, place = np.zeros(0), positions(number)
        self.sent_s.append(time.monotonic())
        self._state(m.JointState(stamp_s, NAMES, place, nothing, nothing))
        self._command(m.JointTrajectory(stamp_s, NAMES, place[None], np.array([0.01])))
        if number % EVERY[PICTURES] == 0:
            self._picture(m.Image(stamp_s, pixels(number)))

    def spin(self, seconds: float, until: Callable[[], bool] = lambda: False) -> bool:
        """Publish until then, or for so long; returns whether it came true."""
        end_s = time.monotonic() + seconds
        self.bus.spin(lambda: until() or time.monotonic() > end_s)
        return until()

    def heard(self, *words: str) -> bool:
        return any(word in text for text in self.answers for word in words)

    def number_at(self, at_s: float) -> int:
        """Number of the last message that was sent before this time; -1 without any."""
        return int(np.searchsorted(self.sent_s, at_s)) - 1


class Recorder:
    """The node, in a process of its own."""

    def __init__(self, folder: Path, log: Path, domain: int) -> None:
        self.folder, self.log = folder, log
        environment = os.environ | {"ROS_DOMAIN_ID": str(domain), "PYTHONPATH": str(ROOT)}
        words = ["robo_rl.apps.node", "recorder", "bus=dds", f"out={folder}", "cameras=top"]
        with log.open("wb") as file:
            self.process = subprocess.Popen(
                [sys.executable, "-m", *words], env=environment, cwd=ROOT, stdout=file, stderr=file
            )

    def said(self) -> str:
        return self.log.read_text(errors="replace")

    def answer(self, beginning: str) -> str:
        """The last line from this on; empty without one."""
        lines = [line for line in self.said().splitlines() if beginning in line]
        return lines[-1][lines[-1].index(beginning) :] if lines else ""

    def ended(self) -> bool:
        return self.process.poll() is not None

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def locks(self) -> bool:
        """True when it has taken the lock of the folder, after which it salvages."""
        try:
            return str(self.process.pid) in (self.folder / ".lock").read_text()
        except OSError:
            return False
