"""CPU time of the nodes of the simulated arm on rclpy and on DDS without ROS, in one run.

    python benchmarks/ros_cpu.py                     # 20 s for each bus; rclpy needs a sourced ROS 2
    python benchmarks/ros_cpu.py --bus dds           # one of the two

Simulated robot, safety filter, action head and policy run as four processes at their usual rates: states at
100 Hz, commands at 50 Hz, and the filter's watchdog. The sum counts these four processes. The policy's
inference process has a line of its own, because no bus changes it. A probe counts messages before the
measurement, so that a loop that stands still does not look cheap. The goal comes from a fifth process, which
sends once.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the bundles are the tests'

from common import emit, parser

from hardware.bus.choose import make_bus
from hardware.description import load_description
from hardware.topics import CHUNK, JOINT_STATES, SAFE
from robo_rl.core.spec import EnvSpec
from sim.arms.arm6.body import SimulatedArm
from tests.hardware.bundles import arm_bundle, arm_env

DOMAIN = "99"  # unless ROS_DOMAIN_ID names another one
BUSES = ("rclpy", "dds")
GOAL = "task"  # not counted
NODES = {
    "sim_robot": ["robot=sim_arm"],
    "safety_filter": ["robot=sim_arm", "arm=true"],
    "action_head": ["robot=sim_arm", "bundle={folder}/chunks"],
    "arm_policy": ["robot=sim_arm", "bundle={folder}/chunks", "start=true"],
    GOAL: ["goal=[0.3]"],
}
READY_S, PROBED_S = 60.0, 3.0


def main() -> None:
    options = parser(__doc__.splitlines()[0])
    options.add_argument("--bus", choices=BUSES, nargs="+", help="default: dds, and rclpy where it exists")
    options.add_argument("--seconds", type=float, default=20.0, help="time of each measurement")
    args = options.parse_args()
    os.environ.setdefault("ROS_DOMAIN_ID", DOMAIN)
    chosen = args.bus or [bus for bus in BUSES if bus == "dds" or find_spec("rclpy") is not None]
    with tempfile.TemporaryDirectory() as folder:
        arm_bundle(Path(folder) / "chunks", env=env_at_start())
        for bus in chosen:
            measure(bus, folder, 5.0 if args.quick else args.seconds)


def env_at_start() -> EnvSpec:
    """An environment whose actions lie within 0.02 rad of the arm's start: the filter passes all commands."""
    env, (start_rad, _) = arm_env(load_description("sim_arm").names), SimulatedArm().read()
    low, high = tuple(map(float, start_rad - 0.02)), tuple(map(float, start_rad + 0.02))
    return replace(env, action=replace(env.action, low=low, high=high))


def measure(bus: str, folder: str, seconds: float) -> None:
    """Emit the load of each node, and their sum, in percent of a core."""
    with started(bus, folder) as processes:
        state_hz, command_hz, chunk_hz = rates_hz(bus)
        found = {name: [process.pid, *children(process.pid)] for name, process in processes.items()}
        before, start_s = {name: list(map(cpu_s, pids)) for name, pids in found.items()}, time.monotonic()
        time.sleep(seconds)
        took_s = time.monotonic() - start_s
        loads = {
            name: [100.0 * (cpu_s(pid) - was) / took_s for pid, was in zip(pids, before[name], strict=True)]
            for name, pids in found.items()
        }
        if ended := [name for name, process in processes.items() if process.poll() is not None]:
            raise SystemExit(f"{ended[0]} has ended during the measurement.")
    extra = {
        "seconds": seconds,
        "state_hz": round(state_hz, 1),
        "command_hz": round(command_hz, 1),
        "chunk_hz": round(chunk_hz, 1),
        "load_1min": round(os.getloadavg()[0], 2),
        "cores": os.cpu_count(),
    }
    del loads[GOAL]
    for name, (own, *_) in loads.items():
        emit(f"ros_cpu/{bus}/{name}", own, "% of a core", **extra)
    emit(f"ros_cpu/{bus}/inference", sum(loads["arm_policy"][1:]), "% of a core", **extra)
    emit(f"ros_cpu/{bus}/sum", sum(own for own, *_ in loads.values()), "% of a core", **extra)


@contextmanager
def started(bus: str, folder: str) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """The four nodes, ended whatever happens."""
    root = str(Path(__file__).resolve().parents[1])
    environment = os.environ | {"PYTHONPATH": f"{root}:{os.environ.get('PYTHONPATH', '')}"}
    processes: dict[str, subprocess.Popen[bytes]] = {}
    try:
        for name, words in NODES.items():
            filled = [word.format(folder=folder) for word in words]
            processes[name] = subprocess.Popen(
                [sys.executable, "-m", "robo_rl.apps.node", name, *filled, f"bus={bus}"],
                env=environment, stdout=sys.stderr, start_new_session=True,
            )  # fmt: skip
        yield processes
    finally:
        for process in processes.values():
            process.terminate()
        for process in processes.values():
            try:
                process.wait(READY_S / 4.0)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def rates_hz(bus: str) -> tuple[float, float, float]:
    """Rates of states, commands and chunks, once all of them flow; the probe is gone afterwards."""
    probe = make_bus("probe", bus=bus)
    counts = {JOINT_STATES.name: 0, SAFE.name: 0, CHUNK.name: 0}

    def count(topic: str) -> None:
        counts[topic] += 1

    JOINT_STATES.subscribe(probe, lambda state, _: count(JOINT_STATES.name))
    SAFE.subscribe(probe, lambda command, _: count(SAFE.name))
    CHUNK.subscribe(probe, lambda chunk, _: count(CHUNK.name))
    late_s = probe.now() + READY_S
    probe.spin(lambda: min(counts.values()) > 10 or probe.now() > late_s)
    if min(counts.values()) <= 10:
        raise SystemExit(f"Messages received in {READY_S:g} s: {counts}. Something does not run.")
    before, start_s = dict(counts), probe.now()
    probe.spin(lambda: probe.now() > start_s + PROBED_S)
    probe.close()
    states, commands, chunks = ((counts[topic] - before[topic]) / PROBED_S for topic in counts)
    return states, commands, chunks


def cpu_s(pid: int) -> float:
    """CPU time of a process and all its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def children(pid: int) -> list[int]:
    """The processes that this one has started."""
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(word) for word in listed.split()]


if __name__ == "__main__":
    main()
