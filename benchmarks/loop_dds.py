"""Closed loop and camera over DDS on loopback, between two processes; called by `loop.py`.

    python benchmarks/loop_dds.py                # 20 s at 100 and at 500 Hz, 15 s of pictures
    python benchmarks/loop_dds.py --realtime     # both processes under SCHED_FIFO, as on a robot (root)

A robot publishes the state of seven joints at a fixed rate; a policy in another process answers each with a
command. A tick is missed when its answer has not arrived by the next one. The median is the delay of the
middleware; the tail comes from the machine's scheduler, so each result includes the machine's load. Lines
with `peer` measure machine and middleware alone: the same bytes there and back through the binding, without
message types, bus or policy.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from common import emit, parser

from hardware.bus.dds import types as dds_types
from hardware.bus.dds.bus import DdsBus
from hardware.bus.dds.cdr import ros_types
from hardware.bus.protocol import Profile
from hardware.camera.source import Pattern, pattern_number
from hardware.messages import Flag, Image, JointState, JointTrajectory
from hardware.topics import JOINT_STATES, SAFE, image_topic
from robo_rl.core.ticks import ticks

NAMES = tuple(f"joint{number}" for number in range(7))
DOMAIN = "99"  # unless ROS_DOMAIN_ID names another one
RATES_HZ = (100, 500)
CAMERA_HZ, WIDTH, HEIGHT = 30, 640, 480
READY_S = 20.0
RMEM = Path("/proc/sys/net/core/rmem_max")


def main() -> None:
    options = parser(__doc__.splitlines()[0])
    options.add_argument("--realtime", action="store_true", help="run both processes under SCHED_FIFO (root)")
    options.add_argument(
        "--peer", choices=["policy", "viewer", "echo"], help="internal: run as the second process"
    )
    args = options.parse_args()
    if args.peer:
        {"policy": policy, "viewer": viewer, "echo": echo}[args.peer]()
    else:
        measure(args.quick, args.realtime)


def measure(quick: bool, realtime: bool = False) -> None:
    """Emit all numbers."""
    os.environ.setdefault("ROS_DOMAIN_ID", DOMAIN)
    if realtime:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(20))  # the other process inherits it
    for rate_hz in RATES_HZ:
        with peer("policy"):
            measure_loop(rate_hz, 3.0 if quick else 20.0, realtime)
        with peer("echo"):
            measure_bare(rate_hz, 3.0 if quick else 10.0, realtime)
    with peer("viewer") as process:
        measure_pictures(process, 3.0 if quick else 15.0, realtime)


@contextmanager
def peer(role: str) -> Iterator[subprocess.Popen[str]]:
    """The second process, ended in any case."""
    process = subprocess.Popen(
        [sys.executable, __file__, "--peer", role],
        env=os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[1])},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def measure_loop(rate_hz: int, seconds: float, realtime: bool) -> None:
    """Round trips of state and command."""
    bus = DdsBus("robot")
    publish = JOINT_STATES.publisher(bus)
    sent: list[float] = []
    rtt_s: dict[int, float] = {}
    missed: list[int] = []
    values = np.zeros(7)

    def tick() -> None:
        if sent and len(sent) - 1 not in rtt_s:
            missed.append(len(sent) - 1)
        values[0] = len(sent)
        sent.append(time.perf_counter())
        publish(JointState(bus.stamp(), NAMES, values, values))

    def answer(command: JointTrajectory, _: float) -> None:
        number = int(command.position_rad[0, 0])
        if number < len(sent):
            rtt_s.setdefault(number, time.perf_counter() - sent[number])

    SAFE.subscribe(bus, answer)
    bus.timer(1.0 / rate_hz, tick)
    late_s = bus.now() + READY_S
    bus.spin(lambda: len(rtt_s) > rate_hz // 10 or bus.now() > late_s)
    if not rtt_s:
        raise SystemExit("The other process never answered.")
    sent.clear()
    rtt_s.clear()
    missed.clear()
    start_s, cpu_s = bus.now(), time.process_time()
    bus.spin(lambda: bus.now() - start_s >= seconds)
    cpu_s = time.process_time() - cpu_s
    bus.close()
    times_ms = sorted(1e3 * value for value in rtt_s.values())
    extra = surroundings(realtime) | {
        "ticks": len(sent),
        "robot_cpu_percent": round(100.0 * cpu_s / seconds, 1),
    }
    p99, worst = times_ms[int(0.99 * len(times_ms))], times_ms[-1]
    emit(f"loop/dds/{rate_hz}/rtt_ms_p50", statistics.median(times_ms), "ms", p99=p99, max=worst, **extra)
    emit(f"loop/dds/{rate_hz}/missed_percent", 100.0 * len(missed) / max(1, len(sent)), "%", **extra)


def measure_bare(rate_hz: int, seconds: float, realtime: bool) -> None:
    """Round trips of the bytes of a state, by cyclonedds' own classes."""
    ends = Bare("there", "back")
    cdr = ros_types().encode(JointState(time.time(), NAMES, np.zeros(7), np.zeros(7)))
    late_s = time.monotonic() + READY_S
    ends.send(cdr)
    while not ends.wait(0.1):  # an answer: a process that has ended counts as matched for a while
        if time.monotonic() > late_s:
            raise SystemExit("The other process was never found.")
        ends.send(cdr)
    times_ms = []
    for _ in zip(ticks(rate_hz), range(round(seconds * rate_hz)), strict=False):
        start_s = time.perf_counter()
        ends.send(cdr)
        if ends.wait(1.0 / rate_hz):
            times_ms.append(1e3 * (time.perf_counter() - start_s))
    p99 = float(np.percentile(times_ms, 99))
    emit(
        f"loop/dds/{rate_hz}/rtt_ms_p50",
        statistics.median(times_ms),
        "ms",
        peer="cyclonedds alone",
        p99=p99,
        **surroundings(realtime),
    )


class Bare:
    """Writer and reader of joint states, best effort, newest message only: the binding without a bus."""

    def __init__(self, written: str, read: str) -> None:
        from cyclonedds.core import InstanceState, ReadCondition, SampleState, ViewState, WaitSet
        from cyclonedds.domain import DomainParticipant
        from cyclonedds.pub import DataWriter
        from cyclonedds.sub import DataReader
        from cyclonedds.topic import Topic

        domain = int(os.environ["ROS_DOMAIN_ID"])
        dds_types.join_domain(domain, dds_types.LOOPBACK)
        participant, qos = DomainParticipant(domain), dds_types.endpoint_qos(False, False, 1)
        self._kind = dds_types.carrier(ros_types(), "sensor_msgs/msg/JointState")
        topics = [
            Topic(participant, name, self._kind, dds_types.Qos(dds_types.PLAIN)) for name in (written, read)
        ]
        self.writer: Any = DataWriter(participant, topics[0], qos)
        self.reader: Any = DataReader(participant, topics[1], qos)
        self._waitset: Any = WaitSet(participant)
        self._waitset.attach(ReadCondition(self.reader, ViewState.Any | SampleState.Any | InstanceState.Any))

    def send(self, cdr: bytes) -> None:
        self.writer.write(self._kind.of(cdr))

    def wait(self, most_s: float) -> list[bytes]:
        """The message, if one arrives within that time."""
        self._waitset.wait(int(most_s * 1e9))
        return [sample.cdr for sample in self.reader.take(4) if sample.sample_info.valid_data]


def echo() -> None:
    """Second process without a bus: echoes each message until it is killed."""
    ends = Bare("back", "there")
    while os.getppid() != 1:
        for cdr in ends.wait(1.0):
            ends.send(cdr)


def measure_pictures(process: subprocess.Popen[str], seconds: float, realtime: bool) -> None:
    """CPU time of one publish, and the number of images that did not arrive."""
    bus = DdsBus("camera")
    publish = image_topic("wrist").publisher(bus)
    stop = bus.publisher("stop", Flag, Profile.LATCHED)
    ready: list[bool] = []
    bus.subscribe("ready", Flag, Profile.LATCHED, lambda flag, _: ready.append(flag.on))
    late_s = bus.now() + READY_S
    bus.spin(lambda: bool(ready) or bus.now() > late_s)
    pattern, cpu_ms, wall_ms = Pattern(WIDTH, HEIGHT), [], []

    def shoot() -> None:
        picture = Image(bus.stamp(), pattern.read(), "wrist_optical")
        start_s, cpu_s = time.perf_counter(), time.thread_time()
        publish(picture)
        cpu_ms.append(1e3 * (time.thread_time() - cpu_s))
        wall_ms.append(1e3 * (time.perf_counter() - start_s))

    bus.timer(1.0 / CAMERA_HZ, shoot)
    bus.spin(lambda: len(cpu_ms) >= seconds * CAMERA_HZ)
    settled_s = bus.now() + 0.5
    quiet = DdsBus("quiet")  # let the last image arrive without receiving another
    quiet.spin(lambda: quiet.now() > settled_s)
    quiet.close()
    stop(Flag(True))
    seen = json.loads(process.communicate(timeout=READY_S)[0])
    bus.close()
    extra = surroundings(realtime) | {
        "pictures": len(cpu_ms),
        "lost": len(cpu_ms) - seen["pictures"],
        "latency_ms_p50": seen["latency_ms_p50"],
        "wall_ms_p50": statistics.median(wall_ms),
        "rmem_max": int(RMEM.read_text()) if RMEM.exists() else 0,
    }
    emit("loop/dds/image/publish_ms", statistics.median(cpu_ms), "cpu-ms", **extra)
    emit("loop/dds/image/lost", extra["lost"], "pictures", **extra)


def policy() -> None:
    """Second process of the loop: a command for each state, until it is killed."""
    bus = DdsBus("policy")
    publish = SAFE.publisher(bus)

    def decide(state: JointState, _: float) -> None:
        publish(JointTrajectory(state.stamp_s, state.names, state.position_rad[None], np.zeros(1)))

    JOINT_STATES.subscribe(bus, decide)
    bus.spin(lambda: False)


def viewer() -> None:
    """Second process of the camera: counts images until it is stopped, and prints the count."""
    bus, numbers, latency_ms, stopped = DdsBus("viewer"), set(), [], []

    def see(picture: Image, _: float) -> None:
        numbers.add(pattern_number(picture.pixels))
        latency_ms.append(1e3 * (bus.stamp() - picture.stamp_s))

    image_topic("wrist").subscribe(bus, see)
    bus.subscribe("stop", Flag, Profile.LATCHED, lambda flag, _: stopped.append(flag.on))
    say = bus.publisher("ready", Flag, Profile.LATCHED)
    bus.spin(lambda: bool(stopped) or (bus.now() > 0 and _joined(bus)))
    say(Flag(True))
    bus.spin(lambda: bool(stopped))
    print(
        json.dumps(
            {"pictures": len(numbers), "latency_ms_p50": statistics.median(latency_ms) if latency_ms else 0}
        )
    )
    bus.close()


def _joined(bus: Any) -> bool:
    """True if the viewer's reader has discovered the camera."""
    return any(
        reader.topic.endswith("image_raw") and reader.dds.get_matched_publications()
        for reader in bus._readers
    )


def surroundings(realtime: bool) -> dict[str, Any]:
    """Load of the machine during the measurement."""
    return {"load_1min": round(os.getloadavg()[0], 2), "cores": os.cpu_count(), "realtime": realtime}


if __name__ == "__main__":
    main()
