"""With a real ROS 2: `ros2 launch`, and what its command line does to the nodes.

Skipped where no ROS 2 is sourced. Run: source /opt/ros/jazzy/setup.bash && python3 -m pytest -m ros
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hardware.bus.choose import make_bus
from hardware.bus.protocol import Bus
from hardware.messages import Diagnostics, JointTrajectory
from hardware.topics import SAFE, SAFETY_STATE

pytest.importorskip("ros2cli", reason="no ROS 2 is sourced here: ros2cli is missing")
pytestmark = pytest.mark.ros
ROOT = Path(__file__).resolve().parents[3]
SOON_S, GONE_S = 30.0, 5.0


def ros2(*words: str) -> list[str]:
    """`ros2 words`, in the Python of the tests."""
    return [sys.executable, str(shutil.which("ros2")), *words]


def answer(*words: str) -> str:
    """Output of a `ros2` command that asks one node, once the node has been discovered.

    Without its daemon the command looks for half a second, which Fast DDS may exceed on a busy machine.
    """
    late_s = time.monotonic() + SOON_S
    while True:
        ran = subprocess.run(
            ros2(*words, "--no-daemon"), capture_output=True, text=True, timeout=SOON_S, check=False
        )
        said = ran.stdout + ran.stderr
        if "not found" not in said.lower() or time.monotonic() > late_s:
            return said


def start(tmp_path: Path) -> subprocess.Popen[str]:
    """`ros2 launch` of the simulated arm."""
    with (tmp_path / "launch.log").open("a") as log:
        return subprocess.Popen(
            ros2("launch", str(ROOT / "launch" / "sim.launch.py")),
            env=os.environ | {"TMPDIR": str(tmp_path), "PYTHONPATH": f"{ROOT}:{os.environ['PYTHONPATH']}"},
            text=True,
            stdout=log,
            stderr=log,
        )


def children(pid: int) -> list[int]:
    """Child processes of this one."""
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(word) for word in listed.split()]


def runs(pid: int) -> bool:
    """False for a process that has ended, even if the system has not removed it yet.

    The parent of these is gone; a container's first process may take seconds to remove them, or never do.
    """
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


class Listener:
    """A node that hears the filter."""

    def __init__(self, bus: Bus) -> None:
        self.bus, self.commands, self.reasons = bus, list[JointTrajectory](), list[str]()
        SAFE.subscribe(bus, lambda command, _: self.commands.append(command))
        SAFETY_STATE.subscribe(bus, self._on_state)

    def _on_state(self, state: Diagnostics, received_s: float) -> None:
        self.reasons.append(state.status[0].message)

    def wait(self, true: Callable[[], bool], seconds: float = SOON_S) -> None:
        late_s = time.monotonic() + seconds
        self.bus.spin(lambda: true() or time.monotonic() > late_s)
        assert true(), "it did not happen in time"


@pytest.fixture
def launched(domain: int, tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], Listener, list[int]]]:
    """The launch, a listener, and the nodes' processes, once the arm is held."""
    process = start(tmp_path)
    bus = make_bus("listener", "", "rclpy")
    listener = Listener(bus)
    try:
        listener.wait(lambda: len(listener.commands) > 10)
        yield process, listener, children(process.pid)
    finally:
        bus.close()
        process.kill()
        process.wait()


@pytest.mark.parametrize(
    "words", [("--once",), ("-t", "3", "--qos-profile", "sensor_data")], ids=["usual", "sensor"]
)
def test_emergency_stop_by_ros2_topic_pub(
    launched: tuple[subprocess.Popen[str], Listener, list[int]], words: tuple[str, ...]
) -> None:
    """With the default quality of service, which is volatile, and with that of sensors."""
    _, listener, _ = launched
    subprocess.run(
        ros2("topic", "pub", *words, "/estop", "std_msgs/msg/Bool", "{data: true}"),
        check=True, timeout=SOON_S, capture_output=True,
    )  # fmt: skip
    # The filter reports once a second: with Fast DDS the first report may come after the stop.
    listener.wait(lambda: "emergency stop was pressed" in "".join(listener.reasons[-1:]), GONE_S)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_nodes_end_with_ros2_launch(
    launched: tuple[subprocess.Popen[str], Listener, list[int]], how: signal.Signals
) -> None:
    """`ros2 launch` leaves its processes behind; these end within 5 s, and nothing commands the arm."""
    process, listener, nodes = launched
    assert len(nodes) >= 4
    process.send_signal(how)
    listener.wait(lambda: not any(map(runs, nodes)), GONE_S)
    sent = len(listener.commands)
    late_s = time.monotonic() + 0.5
    listener.bus.spin(lambda: time.monotonic() > late_s)
    assert len(listener.commands) == sent


def test_a_second_launch_is_refused(
    launched: tuple[subprocess.Popen[str], Listener, list[int]], tmp_path: Path
) -> None:
    assert start(tmp_path).wait(SOON_S) == 1
    assert (
        "Another `robo-rl up`, `robo-rl record` or `ros2 launch` runs"
        in (tmp_path / "launch.log").read_text()
    )


def test_killed_node_fails_the_launch(
    launched: tuple[subprocess.Popen[str], Listener, list[int]],
) -> None:
    process, _, nodes = launched
    os.kill(nodes[0], signal.SIGKILL)
    assert process.wait(SOON_S) == 1
