"""Attack of running nodes by SIGKILL: `robo-rl up arm_sim` with a policy, in a DDS domain of its own.

Policy, head, filter, robot and launcher are killed in turn at random instants. An observer that is no node of
the set compares the commands with the robot's limits. Afterwards every process of the set has to be gone.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from hardware.bus.dds.bus import DdsBus
from hardware.description import load_description
from hardware.messages import JointTrajectory
from hardware.topics import SAFE
from tests.hardware.bundles import arm_bundle, arm_env

DOMAIN = "97"
VICTIMS = ("arm_policy", "action_head", "safety_filter", "sim_robot", "up")
START_S, LATEST_KILL_S, GONE_S = 60.0, 1.0, 12.0
SLACK_S = 0.03  # in the time between two messages, for the scheduler
ENOUGH = 10  # commands that prove that the policy drives


@dataclass
class Watch:
    """Commands to the robot as an observer receives them."""

    speed_rad_s: np.ndarray
    low_rad: np.ndarray
    high_rad: np.ndarray
    received: list[tuple[float, np.ndarray]] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    def see(self, message: JointTrajectory, received_s: float) -> None:
        place = np.asarray(message.position_rad)[-1]
        if not np.isfinite(place).all():
            self.faults.append("a command is not finite")
        elif (place < self.low_rad - 1e-6).any() or (place > self.high_rad + 1e-6).any():
            self.faults.append("a command is out of range")
        elif self.received:
            since_s = received_s - self.received[-1][0] + SLACK_S
            if (np.abs(place - self.received[-1][1]) > self.speed_rad_s * since_s).any():
                self.faults.append("a command is too fast")
        self.received.append((received_s, place))


def members(launcher: int) -> dict[str, int]:
    """Process id of each node of the launcher, by the name in its command line."""
    found: dict[str, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rsplit(")", 1)[1].split()[1])
            words = (folder / "cmdline").read_bytes().decode().split("\0")
        except OSError:  # ended meanwhile
            continue
        if parent == launcher and "robo_rl.apps.node" in words:
            found[words[words.index("robo_rl.apps.node") + 1]] = int(folder.name)
    return found


def runs(pid: int) -> bool:
    """True while the process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def kill_one(victim: str, bundle: Path, rng: random.Random) -> list[str]:
    """Start the set, kill one of its processes, and return the promises that were broken."""
    robot = load_description("sim_arm")
    watch = Watch(*(robot.column(key) for key in ("velocity_rad_s", "low_rad", "high_rad")))
    environment = os.environ | {"ROS_DOMAIN_ID": DOMAIN}
    words = [sys.executable, "-m", "robo_rl", "up", "arm_sim", f"bundle={bundle}", "goal=[0.1]"]
    log = bundle.parent / "log"
    with log.open("wb") as file:
        launcher = subprocess.Popen(words, env=environment, stdout=file, stderr=file)
    bus = DdsBus("observer", domain=int(DOMAIN), warn=lambda sentence: None)
    nodes: dict[str, int] = {}
    try:
        SAFE.subscribe(bus, watch.see)
        end_s = time.monotonic() + START_S
        bus.spin(
            lambda: len(watch.received) >= ENOUGH or launcher.poll() is not None or time.monotonic() > end_s
        )
        nodes = members(launcher.pid)
        if len(watch.received) < ENOUGH or not set(VICTIMS) - {"up"} <= nodes.keys():
            return [f"the set does not start: {sorted(nodes)}: {log.read_text()[-200:]}"]
        end_s = time.monotonic() + rng.uniform(0.0, LATEST_KILL_S)
        bus.spin(lambda: time.monotonic() > end_s)
        os.kill(launcher.pid if victim == "up" else nodes[victim], signal.SIGKILL)
        end_s = time.monotonic() + GONE_S
        bus.spin(lambda: not any(map(runs, (launcher.pid, *nodes.values()))) or time.monotonic() > end_s)
        left = [name for name, pid in nodes.items() if runs(pid)]
        code = launcher.wait(1.0) if not runs(launcher.pid) else None
        expected = -signal.SIGKILL if victim == "up" else 3
        return (
            watch.faults
            + [f"{name} is left running" for name in left]
            + ([f"up ends with {code}, expected {expected}"] if code != expected else [])
        )
    finally:
        bus.close()
        for pid in (launcher.pid, *nodes.values()):
            if runs(pid):
                os.kill(pid, signal.SIGKILL)
        launcher.wait()


def attack(tries: int, seed: int) -> tuple[int, Counter[str], str]:
    """Kill one process after the other, `tries` times."""
    rng, counts, example = random.Random(seed), Counter[str](), ""
    with TemporaryDirectory(prefix="robo-rl-processes-") as folder:
        bundle = Path(folder) / "bundle"
        arm_bundle(bundle, env=arm_env(load_description("sim_arm").names))
        for number in range(tries):
            victim = VICTIMS[number % len(VICTIMS)]
            found = [f"{victim}: {sentence}" for sentence in kill_one(victim, bundle, rng)]
            counts.update(found)
            example = example or (f"number {number}, {found[0]}" if found else "")
    return tries, counts, example
