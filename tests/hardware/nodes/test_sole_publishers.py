"""A second publisher of a topic that moves an arm, in another process over DDS, stops the robot."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from itertools import count
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("cyclonedds", reason="cyclonedds is not installed: pip install 'robo-rl[dds]'")

from hardware.arms.simulated import SimulatedArmDriver
from hardware.bus.dds.bus import DdsBus
from hardware.nodes.robot_driver import ArmDriverNode
from hardware.nodes.safety_filter import SafetyFilterNode
from hardware.nodes.sim_robot import SimArmNode
from hardware.safety.phase import Phase
from hardware.safety.reasons import Reason
from hardware.topics import JOINT_STATES, RAW, SAFE, TELEOP
from tests.hardware.arm_descriptions import arm, command, state
from tests.hardware.nodes.fakes import LagArm
from tests.hardware.nodes.test_robot_driver import LIMITS

ROOT = Path(__file__).resolve().parents[3]
SOON_S, LEASE_S = 10.0, 10.0
LIMIT_RAD_S = 2.0  # of the small arm


@contextmanager
def stranger(topic: str) -> Iterator[subprocess.Popen[bytes]]:
    """A second publisher on `topic`, in its own process."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.hardware.nodes.stranger", topic],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def wait_for(bus: DdsBus, true: Callable[[], bool], seconds: float = SOON_S) -> None:
    """Spin until the condition is true; fail after a time limit."""
    late_s = bus.now() + seconds
    bus.spin(lambda: true() or bus.now() > late_s)
    assert true(), "it did not happen in time"


class TimedArm(LagArm):
    """Records commands with their times."""

    def __init__(self) -> None:
        super().__init__()
        self.timed: list[tuple[float, np.ndarray]] = []

    def command(self, position_rad: np.ndarray) -> None:
        super().command(position_rad)
        self.timed.append((time.monotonic(), self.goal.copy()))

    def fastest(self, window_s: float = 0.2) -> float:
        """Largest speed of the commands of any joint, in the mean over at least `window_s` [rad/s]."""
        most = 0.0
        for i, (begin_s, begin) in enumerate(self.timed):
            later = next(((t, q) for t, q in self.timed[i:] if t - begin_s >= window_s), None)
            if later is not None:
                most = max(most, float(np.abs(later[1] - begin).max()) / (later[0] - begin_s))
        return most


def test_sole_unknown_publisher_is_followed_within_the_limits(domain: int) -> None:
    """At the speed of the description; without that bound it was 3 times as fast."""
    lag = TimedArm()
    with closing(DdsBus("robot", domain=domain)) as bus:
        SimArmNode(bus, lag, 50.0, arm())
        with stranger(SAFE.name):
            wait_for(bus, lambda: len(lag.timed) > 700)
    assert 0.5 * LIMIT_RAD_S < lag.fastest() <= 1.15 * LIMIT_RAD_S  # two periods more than the window
    assert np.abs([q for _, q in lag.timed]).max() <= 1.0


def test_second_publisher_is_never_followed(domain: int) -> None:
    """The driver stops before its first command, and connects only when one publisher is left."""
    lag, said, made = LagArm(), list[str](), partial(DdsBus, domain=domain)
    with closing(made("robot_driver")) as bus, closing(made("filter")) as other:
        driver = SimulatedArmDriver(lag, LIMITS, rate_hz=50.0, watchdog_s=9.0)
        node = ArmDriverNode(bus, driver, 50.0, arm(), said.append)
        send = SAFE.publisher(other)
        bus.timer(0.02, lambda: send(command(np.zeros(3))))
        wait_for(bus, lambda: len(lag.commands) > 10)
        with stranger(SAFE.name) as process:
            wait_for(bus, lambda: bool(said))
            before = len(lag.commands)
            assert "command/safe has 2 publishers" in said[0]
            assert "/filter" in said[0]
            assert f"process {process.pid} on" in said[0]
            wait_for(bus, lambda: "/stranger (" in said[-1])  # it announces its name later
            assert node._connect() == (False, said[-1])
            assert len(lag.commands) == before
            process.terminate()
            wait_for(bus, lambda: node._connect()[0])
        assert not np.any(lag.commands)  # nothing but the filter's zeros, ever
        wait_for(bus, lambda: len(lag.commands) > before + 10)


@pytest.mark.parametrize("topic", ["command/raw", "command/safe", "teleop/command", "joint_states"])
def test_filter_stops_and_arms_only_with_one_publisher(topic: str, domain: int) -> None:
    """Also for a second sender of command/safe, to which the filter itself does not subscribe."""
    said, made = list[str](), partial(DdsBus, domain=domain)
    with closing(made("filter")) as bus, closing(made("others")) as other:
        node = SafetyFilterNode(bus, arm(), arm=True, say=said.append)
        tell, say, numbers = JOINT_STATES.publisher(other), RAW.publisher(other), count()
        TELEOP.publisher(other)  # a human who does nothing

        def speak() -> None:
            tell(state(np.zeros(3)))
            say(command(np.zeros(3), next(numbers)))

        bus.timer(0.02, speak)
        wait_for(bus, lambda: node.filter.phase is Phase.ARMED and node.filter.reason is None)
        with stranger(topic) as process:
            wait_for(bus, lambda: node.filter.phase is Phase.DISARMED)
            assert node.filter.counts[Reason.SECOND_PUBLISHER] == 1
            assert not node.filter.counts[Reason.STATE_JUMP]
            assert any(f"{topic} has 2 publishers" in line for line in said)
            answer = node.filter.arm(bus.now())
            assert answer[0] is False
            assert f"not armed: {topic} has 2 publishers, /" in answer[1]
            assert f"process {process.pid} on" in answer[1]
            wait_for(
                bus, lambda: "/stranger (" in node.filter.publisher_conflict
            )  # it announces its name later
            process.terminate()
            wait_for(bus, lambda: node.filter.arm(bus.now())[0])


@pytest.mark.slow
def test_killed_publisher_counts_until_its_lease_ends(domain: int) -> None:
    """After SIGKILL and an immediate restart two are listed for 10 s; then the arm can be armed again."""
    with closing(DdsBus("filter", domain=domain)) as bus, closing(DdsBus("robot", domain=domain)) as other:
        node = SafetyFilterNode(bus, arm(), say=lambda line: None)
        tell = JOINT_STATES.publisher(other)
        bus.timer(0.02, lambda: tell(state(np.zeros(3))))
        with stranger(RAW.name) as head:
            wait_for(bus, lambda: node.filter.arm(bus.now())[0])
            wait_for(bus, lambda: node.filter.counts[Reason.JUMP_AT_START] > 0)  # it is heard
            head.kill()
            with stranger(RAW.name):
                wait_for(bus, lambda: bool(node.filter.publisher_conflict))
                killed_s = bus.now()
                assert node.filter.arm(bus.now()) == (False, f"not armed: {node.filter.publisher_conflict}")
                wait_for(bus, lambda: node.filter.arm(bus.now())[0], LEASE_S + 5.0)
                assert bus.now() - killed_s < LEASE_S + 1.0
