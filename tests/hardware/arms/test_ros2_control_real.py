"""The node controller_driver before the real controllers of ros2_control, on mock hardware.

Skipped where ROS 2 or its packages are missing. Run:
source /opt/ros/jazzy/setup.bash && python3 -m pytest -m ros
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from tests.hardware.arms.real_controller import (
    FORWARD,
    JTC,
    PLACE,
    START_S,
    Probe,
    children,
    driver,
    manager,
    missing_packages,
    program,
)

pytestmark = pytest.mark.ros
FOLLOWS = (0, "follows commands")
SPEED_RAD_S = 0.4


@pytest.fixture(autouse=True)
def packages() -> None:
    if missing := missing_packages():
        pytest.skip(missing)


@contextmanager
def moving(folder: Path, controller: str, output: str = "auto", from_desired: bool = True) -> Iterator[Probe]:
    """A probe that has moved the first joint for 1 s."""
    with manager(folder, controller, from_desired) as launch, driver(folder, controller, output):
        probe = Probe(controller)
        probe.launch_pid = launch.pid
        try:
            assert probe.spin(START_S, lambda: FOLLOWS in probe.status), (folder / "driver.log").read_text()
            probe.stream(1.0, "driver", lambda now_s: SPEED_RAD_S * now_s)
            assert probe.status[-1] == FOLLOWS
            yield probe
        finally:
            probe.close()


def ros2(*words: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, str(shutil.which("ros2")), *words]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def switch(probe: Probe, how: str, target: Callable[[float], float]) -> None:
    """Switch the controller while commands go on."""
    process = ros2("control", "switch_controllers", how, JTC)
    while process.poll() is None:
        probe.stream(0.5, "driver", target)
    assert process.returncode == 0
    probe.stream(1.0, "driver", target)


def program_of(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text()


def said(probe: Probe, sentence: str) -> Callable[[], bool]:
    return lambda: bool(probe.status) and probe.status[-1][0] == 2 and sentence in probe.status[-1][1]


@pytest.mark.parametrize(
    ("controller", "output"),
    [(JTC, "auto"), (JTC, "action"), (FORWARD, "auto")],
    ids=["topic", "action", "forward"],
)
def test_arm_follows_by_joint_name(domain: int, tmp_path: Path, controller: str, output: str) -> None:
    """joint_states list the joints in alphabetical order; only the commanded joint moves."""
    with moving(tmp_path, controller, output) as probe:
        places = probe.listen_to_joints()
        probe.stream(0.6, "driver", lambda now_s: SPEED_RAD_S)
        assert list(places) == sorted(PLACE)
        assert places == pytest.approx(PLACE | {"base": SPEED_RAD_S}, abs=5e-3)


def test_emergency_stop_rests_the_arm(domain: int, tmp_path: Path) -> None:
    """Through the safety filter at 0.4 rad/s: at rest within 0.3 s and 60 mrad, though commands go on."""
    words = ("safety_filter", "robot=sim_arm", "arm=true", "bus=rclpy")
    with (
        manager(tmp_path),
        driver(tmp_path, JTC),
        program(tmp_path / "filter.log", sys.executable, "-m", "robo_rl.apps.node", *words),
    ):
        probe = Probe(JTC)
        try:
            assert probe.spin(START_S, lambda: FOLLOWS in probe.status), (tmp_path / "driver.log").read_text()
            probe.stream(2.0, "policy", lambda now_s: 0.0)
            probe.stream(1.0, "policy", lambda now_s: SPEED_RAD_S * now_s)
            probe.press_emergency_stop()
            pressed_s = time.time()
            probe.stream(2.0, "policy", lambda now_s: SPEED_RAD_S * (1.0 + now_s))
        finally:
            probe.close()
    rows = probe.samples()
    after = rows[rows[:, 0] > pressed_s]
    assert after[0, 1] == pytest.approx(SPEED_RAD_S, abs=0.1), (tmp_path / "filter.log").read_text()
    moves_s = after[1:, 0][np.abs(np.diff(after[:, 1])) > 1e-6] - pressed_s
    print(f"after {moves_s.max(initial=0.0):.3f} s, {1e3 * (after[-1, 1] - after[0, 1]):.1f} mrad")
    assert moves_s.max(initial=0.0) < 0.3
    assert abs(after[-1, 1] - after[0, 1]) < 0.06


def test_killed_controller_manager_is_reported(domain: int, tmp_path: Path) -> None:
    """Though commands go on, nothing is sent any more."""
    with moving(tmp_path, JTC) as probe:
        (pid,) = (pid for pid in children(probe.launch_pid) if "ros2_control_node" in program_of(pid))
        os.kill(pid, signal.SIGKILL)
        probe.stream(2.0, "driver", lambda now_s: SPEED_RAD_S)
        assert said(probe, "No joint_states come any more, so nothing is sent")(), probe.status[-1]


@pytest.mark.parametrize("output", ["auto", "action"])
def test_activated_controller_does_not_jump_to_the_newest_command(
    domain: int, tmp_path: Path, output: str
) -> None:
    """Commands go on while it is inactive; after its activation nothing moves until ~/connect."""
    with moving(tmp_path, JTC, output) as probe:
        places = probe.listen_to_joints()
        switch(probe, "--deactivate", lambda now_s: SPEED_RAD_S * (1.0 + min(now_s, 1.0)))
        assert said(probe, f"inactive. Activate it: ros2 control switch_controllers --activate {JTC}")()
        before_rad = places["base"]
        switch(probe, "--activate", lambda now_s: 3.0 * SPEED_RAD_S)
        assert places["base"] == pytest.approx(before_rad, abs=1e-3)
        ros2("service", "call", "/controller_driver/connect", "std_srvs/srv/Trigger").wait(START_S)
        probe.stream(2.0, "driver", lambda now_s: 3.0 * SPEED_RAD_S)
        assert probe.status[-1] == FOLLOWS
        assert places["base"] == pytest.approx(3.0 * SPEED_RAD_S, abs=5e-3)


def test_advice_comes_from_the_real_parameters(domain: int, tmp_path: Path) -> None:
    with moving(tmp_path, JTC, from_desired=False):
        pass
    assert "Set interpolate_from_desired_state: true" in (tmp_path / "driver.log").read_text()
