"""Control loop: CPU time of a decision at 1 kHz, and time until an arm holds after a process is killed.

    python benchmarks/loop.py                    # all: in process, remote, kill, dds
    python benchmarks/loop.py --only inproc      # or remote, or kill, or dds

In process: a multilayer perceptron and the safety filter at 1 kHz with absolute deadlines; the result is CPU
time of the thread. Kills: simulated arm, safety filter and commander are separate processes on DDS; one of
them gets SIGKILL, and the result is the time until the arm is reported to hold.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from common import emit, parser

from hardware.description import RobotDescription, load_description, parse_description
from hardware.loop.head_networks import SingleStep
from hardware.messages import Diagnostics, JointState, JointTrajectory
from hardware.nodes.sim_robot import HOLDS
from hardware.safety.arm_filter import ArmFilter
from hardware.safety.reasons import Reason
from hardware.topics import JOINT_STATES, LOOP_STATUS, RAW, SAFETY_STATE
from policies.deploy.bundle import Bundle
from policies.deploy.bundle_writer import write_bundle
from policies.observation import ObsEncoder
from policies.tuned.single_step import SingleStepPolicy
from robo_rl.core.spec import ActionSpec, ArraySpec, EnvSpec
from robo_rl.core.ticks import ticks
from robo_rl.data.normalizer import Normalizer
from robo_rl.nets.denoiser import MlpDenoiserConfig
from robo_rl.nets.image_encoder import ImageEncoderConfig

ROOT = Path(__file__).resolve().parents[1]
DOMAIN, RATE_HZ = 98, 1000.0
NAMES = tuple(f"joint{number}" for number in range(7))
# killed process -> event by which the arm is reported to hold
HELD = {"policy": Reason.STALE_COMMAND.sentence, "state": Reason.STALE_STATE.sentence, "filter": HOLDS}


def main() -> None:
    options = parser(__doc__.splitlines()[0])
    options.add_argument("--only", choices=["inproc", "remote", "kill", "dds"], help="part to measure")
    options.add_argument("--peer", choices=["commander"], help="internal: run as the commanding process")
    args = options.parse_args()
    if args.peer:
        return command()
    torch.set_num_threads(1)
    if args.only in (None, "inproc"):
        in_process(5.0 if args.quick else 60.0)
    if args.only in (None, "remote"):
        import loop_remote

        loop_remote.measure(args.quick)
    if args.only in (None, "kill"):
        for who in HELD:
            times_ms = [kill(who) for _ in range(1 if args.quick else 5)]
            emit(f"loop/kill/{who}/hold_ms", max(times_ms), "ms", times_ms=times_ms, load=os.getloadavg()[0])
    if args.only in (None, "dds"):
        import loop_dds

        loop_dds.measure(args.quick)
    return None


def in_process(seconds: float) -> None:
    """1 kHz: observe, decide, filter. CPU time of decision and filter; deadlines by the wall clock."""
    with tempfile.TemporaryDirectory() as folder:
        head = SingleStep(make_head(Path(folder) / "head"))
    guard, q = ArmFilter(robot_7()), np.zeros(7)
    cpu_ms, late_ms, missed = list[float](), list[float](), 0
    names, period = guard.robot.names, np.array([1.0 / RATE_HZ])
    start_s = time.monotonic()
    for i, late_s in enumerate(ticks(RATE_HZ)):
        now_s = time.monotonic()
        if now_s - start_s > seconds:
            break
        state = JointState(now_s, names, q)
        begin_s = time.thread_time()
        stacked = {"state": np.concatenate([q, q]).astype(np.float32)[None]}
        action = head(stacked, None).astype(np.float64)
        guard.on_state(state, now_s)
        if i == 0:
            guard.arm(now_s)
        guard.on_command(JointTrajectory(now_s, names, action[None], period), "policy", now_s)
        out = guard.tick(now_s)
        cpu_ms.append(1e3 * (time.thread_time() - begin_s))
        q = q if out is None else out
        late_ms.append(1e3 * late_s)
        missed += time.monotonic() - now_s + late_s > 1.0 / RATE_HZ
    extra = {"seconds": seconds, "load": os.getloadavg()[0]}
    half, most = np.percentile(cpu_ms, [50, 99])
    emit(
        "loop/inproc/1khz/decision_ms_p99", float(most), "cpu-ms", p50=float(half), ticks=len(cpu_ms), **extra
    )
    percent = 100.0 * missed / len(cpu_ms)
    emit(
        "loop/inproc/1khz/missed_percent",
        percent,
        "%",
        late_ms_p99=float(np.percentile(late_ms, 99)),
        **extra,
    )


def make_head(folder: Path) -> Bundle:
    """One network call per action: MLP 256 x 3, 14 inputs, 7 outputs; random weights."""
    named = ", ".join(NAMES)
    obs = {"state": ArraySpec((14,), unit=f"rad: {named}; rad/s: {named}")}
    env = EnvSpec("benchmark/loop", obs, ActionSpec((-0.2,) * 7, (0.2,) * 7, f"rad: {named}"), 1000, RATE_HZ)
    encoder = ObsEncoder(env.obs, 1, Normalizer({"state": (14,)}), ImageEncoderConfig())
    policy = SingleStepPolicy(env, encoder, MlpDenoiserConfig(), 1, 1, 1).eval()
    return write_bundle(folder, policy, env, name="head", noise="zero", training={})


def robot_7() -> RobotDescription:
    joint = {"low_rad": -2.9, "high_rad": 2.9, "velocity_rad_s": 2.0, "acceleration_rad_s2": 20.0}
    joints = [{"name": name, **joint} for name in NAMES]
    return parse_description(
        {"name": "seven", "command_hz": RATE_HZ, "state_hz": RATE_HZ, "joints": joints}, "seven"
    )


def kill(who: str) -> float:
    """Milliseconds from SIGKILL until the arm is held."""
    from hardware.bus.dds.bus import DdsBus

    os.environ["ROS_DOMAIN_ID"] = str(DOMAIN)
    heard: list[tuple[str, float]] = []
    places: list[Any] = []

    def hear(message: Diagnostics, at_s: float) -> None:
        heard.extend((status.message, at_s) for status in message.status)

    bus = DdsBus("probe", warn=lambda sentence: None)
    SAFETY_STATE.subscribe(bus, hear)
    LOOP_STATUS.subscribe(bus, hear)
    JOINT_STATES.subscribe(bus, lambda message, at_s: places.append(message.position_rad))
    node = (sys.executable, "-m", "robo_rl.apps.node")
    with ExitStack() as stack:
        started = {
            "state": stack.enter_context(process(*node, "sim_robot", "bus=dds")),
            "filter": stack.enter_context(
                process(*node, "safety_filter", "robot=sim_arm", "arm=true", "bus=dds")
            ),
            "policy": stack.enter_context(process(sys.executable, __file__, "--peer", "commander")),
        }
        end_s = time.monotonic() + 60.0
        bus.spin(
            lambda: (moves(places) and heard[-1:] != [] and heard[-1][0] == "following policy") or late(end_s)
        )
        begin_s = time.monotonic()
        bus.spin(lambda: time.monotonic() - begin_s > 1.0)
        heard.clear()
        killed_s = time.monotonic()
        started[who].kill()
        bus.spin(lambda: any(message == HELD[who] for message, _ in heard) or late(killed_s + 10.0))
        held_s = next((at_s for message, at_s in heard if message == HELD[who]), float("nan"))
    bus.close()
    return 1e3 * (held_s - killed_s)


def moves(places: list[Any]) -> bool:
    return len(places) > 20 and float(np.abs(places[-1] - places[-20]).max()) > 1e-3


def late(end_s: float) -> bool:
    if time.monotonic() > end_s:
        raise SystemExit("The nodes did not reach the expected state in time; the machine may be overloaded.")
    return False


def command() -> None:
    """Commanding process: a slow sine from the arm's start, at 50 Hz, published as by action_head."""
    from hardware.bus.dds.bus import DdsBus

    robot, bus = load_description("sim_arm"), DdsBus("commander", warn=lambda sentence: None)
    say, start = RAW.publisher(bus), list[Any]()
    JOINT_STATES.subscribe(bus, lambda message, at_s: start or start.append((message.position_rad, at_s)))
    period = np.array([1.0 / robot.command_hz])

    def speak() -> None:
        if start:
            place, begin_s = start[0]
            goal = place + 0.2 * (1.0 - np.cos(1.5 * (bus.now() - begin_s)))
            say(JointTrajectory(bus.stamp(), robot.names, goal[None], period))

    bus.timer(float(period[0]), speak)
    bus.spin(lambda: os.getppid() == 1)


@contextmanager
def process(*words: str) -> Iterator[subprocess.Popen[bytes]]:
    """Process that is ended at the end of the block."""
    env = os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT / 'benchmarks'}"}
    started = subprocess.Popen(words, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield started
    finally:
        started.kill()
        started.wait()


if __name__ == "__main__":
    main()
