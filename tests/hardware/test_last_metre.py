"""The complete path, each part a process: gamepad bytes, teleop, DDS, filter, driver, guard, RTDE over
TCP.
"""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from hardware.arms.ur import JOINTS
from tests.hardware.peers import ROOT, Peer, own_address

pytest.importorskip("rtde_control", reason="ur_rtde is not installed (extra [ur])")
pytest.importorskip("cyclonedds", reason="cyclonedds is not installed (extra [dds])")
JOINT = {"low_rad": -6.2, "high_rad": 6.2, "velocity_rad_s": 1.0, "acceleration_rad_s2": 10.0}


@contextmanager
def running(domain: int, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    environment = os.environ | {"ROS_DOMAIN_ID": str(domain), "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen([sys.executable, "-m", *words], env=environment)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(10.0)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def pid_of(node: str, supervisor: int) -> int:
    """Process id of a node that `robo-rl up` started."""
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            words = (status.parent / "cmdline").read_bytes().split(b"\0")
            parent = next(line for line in status.read_text().splitlines() if line.startswith("PPid:"))
        except OSError:  # it ended meanwhile
            continue
        if node.encode() in words and int(parent.split()[1]) == supervisor:
            return int(status.parent.name)
    raise AssertionError(f"no {node} was started by {supervisor}")


@pytest.mark.slow
def test_gamepad_moves_a_controller_and_a_killed_filter_stops_it(tmp_path: Path, domain: int) -> None:
    """0.3 rad/s for 2 s moves joint 1 by about 0.6 rad; released it stays; kill -9 of the filter stops it.

    The watchdog has 0.3 s here: seven processes on a busy machine stall for more than the 0.1 s of a robot's
    own.
    """
    host, pad = own_address(), tmp_path / "js0"
    robot = {
        "name": "ur",
        "command_hz": 50,
        "state_hz": 100,
        "joints": [{"name": name, **JOINT} for name in JOINTS],
    }
    (tmp_path / "robot.yaml").write_text(yaml.safe_dump(robot))
    (tmp_path / "driver.yaml").write_text(f"driver: ur\nhost: {host}\nrate_hz: 50\nwatchdog_s: 0.3\n")
    os.mkfifo(pad)
    at = {name: f"{name}={tmp_path / name}.yaml" for name in ("robot", "driver")}
    up = (
        "robo_rl",
        "up",
        "set=teleop",
        at["robot"],
        at["driver"],
        "arm=true",
        f"record={tmp_path / 'recordings'}",
    )
    hand = ("robo_rl.apps.node", "teleop", at["robot"], f"path={pad}", "bus=dds")
    with Peer("arms.fake_ur", host) as peer, running(domain, *up) as set_of_nodes:
        reading = os.open(pad, os.O_RDONLY | os.O_NONBLOCK)  # so that the pad can be opened for writing
        writing = os.open(pad, os.O_WRONLY)
        with running(domain, *hand):
            peer.wait("script", 20.0)
            time.sleep(4.0)  # until all have found each other
            os.close(reading)
            press = [struct.pack("<IhBB", 0, 1, 1, 4), struct.pack("<IhBB", 0, 32767, 2, 0)]
            os.write(writing, b"".join(press))
            peer.wait("servo", 10.0)
            time.sleep(2.0)
            os.write(writing, struct.pack("<IhBB", 0, 0, 1, 4))
            released_s = time.monotonic()
            time.sleep(0.8)
            before = [event["q"][0] for event in peer.all("servo") if event["t"] < released_s]
            after = peer.all("servo", released_s)
            assert 0.3 < before[-1] < 0.8
            assert abs(after[-1]["q"][0] - before[-1]) < 0.1
            assert after[-1]["t"] - released_s > 0.5  # the filter goes on holding
            killed_s = time.monotonic()
            os.kill(pid_of("safety_filter", set_of_nodes.pid), signal.SIGKILL)
            stopped = peer.wait("servo_stop", 3.0, after_s=killed_s)
            assert stopped["t"] - killed_s < 0.5  # the watchdog's time, and what a busy machine adds
        os.close(writing)
