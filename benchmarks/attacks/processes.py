"""Attack of running nodes by SIGKILL: `robo-rl up arm_sim` with a policy, in a DDS domain of its own.

Policy, head, filter, robot and launcher are killed in turn at random instants. An observer that is no node of
the set compares the commands with the robot's limits, and measures from the kill until the arm holds: until
the commands stay where they end, and until the measured positions do so too. Afterwards every process of the
set has to be gone.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from common import emit

from hardware.bus.dds.bus import DdsBus
from hardware.description import load_description
from hardware.messages import JointState, JointTrajectory
from hardware.topics import JOINT_STATES, SAFE
from policies.deploy.bundle import OWN_SUM, sha256_of_manifest
from robo_rl.core.spec import ActionSpec
from tests.hardware.bundles import arm_bundle, arm_env

DOMAIN = "97"
VICTIMS = ("arm_policy", "action_head", "safety_filter", "sim_robot", "up")
START_S, LATEST_KILL_S, GONE_S = 60.0, 1.0, 12.0
SLACK_S = 0.03  # in the time between two messages, for the scheduler
MOVES_RAD, MOVES = 0.02, 20  # so far in so many states moves an arm that the policy drives
HELD_RAD = 0.01  # an arm that holds stays so close to where it comes to rest
HOME_RAD, REACH_RAD = (
    (0.0, 0.4, 1.2, 0.0, 0.9, 0.0),
    0.25,
)  # the simulated arm's start, and the policy's range
Track = list[tuple[float, np.ndarray]]  # (time of receipt, joint positions)


@dataclass
class Watch:
    """Commands to the robot and its states, as an observer receives them."""

    speed_rad_s: np.ndarray
    low_rad: np.ndarray
    high_rad: np.ndarray
    received: Track = field(default_factory=list)
    states: Track = field(default_factory=list)
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

    def see_state(self, message: JointState, received_s: float) -> None:
        self.states.append((received_s, np.asarray(message.position_rad)))

    def moves(self) -> bool:
        """True while the policy drives the arm."""
        places = [place for _, place in self.states[-MOVES:]]
        return len(places) == MOVES and float(np.ptp(places, axis=0).max()) > MOVES_RAD

    def held_s(self, killed_s: float) -> tuple[float, float]:
        """Seconds from the kill until the commands stay where they end, and until the arm does so too.

        Where the robot is killed there is no arm to look at: then both are of the commands.
        """
        commands_s, arm_s = (rests_from(track) - killed_s for track in (self.received, self.states))
        return max(0.0, commands_s), max(0.0, commands_s, arm_s)


def rests_from(track: Track) -> float:
    """Time from which all positions are close to the last one."""
    far = [i for i, (_, place) in enumerate(track) if np.abs(place - track[-1][1]).max() > HELD_RAD]
    return track[far[-1] + 1 if far else 0][0]


def restless_bundle(folder: Path) -> Path:
    """An untrained policy whose noise is drawn anew for each chunk, so that the arm always moves."""
    spec = arm_env(load_description("sim_arm").names)
    low, high = (tuple(home + side * REACH_RAD for home in HOME_RAD) for side in (-1, 1))
    arm_bundle(folder, env=replace(spec, action=ActionSpec(low, high, spec.action.unit)))
    manifest = folder / "manifest.json"
    body = json.loads(manifest.read_text())
    body["noise"]["mode"] = "gaussian"
    manifest.write_text(json.dumps(body | {OWN_SUM: sha256_of_manifest(body)}))
    return folder


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


def kill_one(victim: str, bundle: Path, rng: random.Random) -> tuple[list[str], tuple[float, float] | None]:
    """Start the set, and kill one of its processes while the arm moves.

    Returns the promises that were broken, and `Watch.held_s`; None where the set did not start.
    """
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
        JOINT_STATES.subscribe(bus, watch.see_state)
        end_s = time.monotonic() + START_S
        bus.spin(lambda: watch.moves() or launcher.poll() is not None or time.monotonic() > end_s)
        nodes = members(launcher.pid)
        if not watch.moves() or not set(VICTIMS) - {"up"} <= nodes.keys():
            return [f"the set does not start: {sorted(nodes)}: {log.read_text()[-200:]}"], None
        end_s = time.monotonic() + rng.uniform(0.0, LATEST_KILL_S)
        bus.spin(lambda: time.monotonic() > end_s)
        killed_s = bus.now()
        os.kill(launcher.pid if victim == "up" else nodes[victim], signal.SIGKILL)
        end_s = time.monotonic() + GONE_S
        bus.spin(lambda: not any(map(runs, (launcher.pid, *nodes.values()))) or time.monotonic() > end_s)
        left = [name for name, pid in nodes.items() if runs(pid)]
        code = launcher.wait(1.0) if not runs(launcher.pid) else None
        expected = -signal.SIGKILL if victim == "up" else 3
        faults = watch.faults + [f"{name} is left running" for name in left]
        faults += [f"up ends with {code}, expected {expected}"] if code != expected else []
        return faults, watch.held_s(killed_s)
    finally:
        bus.close()
        for pid in (launcher.pid, *nodes.values()):
            if runs(pid):
                os.kill(pid, signal.SIGKILL)
        launcher.wait()


def attack(tries: int, seed: int) -> tuple[int, Counter[str], str]:
    """Kill one process after the other, `tries` times."""
    rng, counts, example = random.Random(seed), Counter[str](), ""
    held: dict[str, list[tuple[float, float]]] = {victim: [] for victim in VICTIMS}
    with TemporaryDirectory(prefix="robo-rl-processes-") as folder:
        bundle = restless_bundle(Path(folder) / "bundle")
        for number in range(tries):
            victim = VICTIMS[number % len(VICTIMS)]
            faults, seconds = kill_one(victim, bundle, rng)
            held[victim] += [] if seconds is None else [seconds]
            found = [f"{victim}: {sentence}" for sentence in faults]
            counts.update(found)
            example = example or (f"number {number}, {found[0]}" if found else "")
    for victim, rows in held.items():
        emit_held(victim, rows, seed)
    return tries, counts, example


def emit_held(victim: str, rows: list[tuple[float, float]], seed: int) -> None:
    """Print the median and the 99th percentile of `Watch.held_s` in control periods."""
    periods = np.array(rows).reshape(-1, 2) * load_description("sim_arm").command_hz
    for what, column in zip(("command_hold", "hold"), periods.T, strict=True):
        for percent in (50, 99) if len(rows) else ():
            name = f"attack/processes/{what}_p{percent}_periods/{victim}"
            emit(name, float(np.percentile(column, percent)), "periods", kills=len(rows), seed=seed)
