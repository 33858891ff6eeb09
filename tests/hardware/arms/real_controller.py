"""A real controller manager of ros2_control with mock hardware, and streams of commands to it.

Needs a sourced ROS 2 with the packages `missing_packages` names. The files are those of
examples/ros2_control; the first joint moves at 1 rad/s, as in `stream_run`.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from tests.hardware.arms.stream_run import LAG_S, PERIOD_S, SPEED_RAD_S, Motion

ROOT = Path(__file__).resolve().parents[3]
FILES = ROOT / "examples" / "ros2_control"
JTC, FORWARD = "joint_trajectory_controller", "forward_position_controller"
PACKAGES = (
    "controller_manager", JTC, "forward_command_controller", "joint_state_broadcaster",
    "robot_state_publisher",
)  # fmt: skip
PLACE = {"base": 0.0, "shoulder": 0.4, "elbow": 1.2, "forearm": 0.0, "wrist": 0.9, "flange": 0.0}  # rad
START_S, STOP_S, SETTLE_S, MOVE_S = 60.0, 10.0, 0.5, 2.2
RealWay = Literal["single1", "single2", "driver", "policy"]


def missing_packages() -> str:
    """Sentence that names the missing ROS packages; empty where all are there."""
    try:
        from ament_index_python.packages import get_packages_with_prefixes
    except ModuleNotFoundError:
        return "No ROS 2 is sourced here. Run: source /opt/ros/jazzy/setup.bash"
    missing = [name for name in PACKAGES if name not in get_packages_with_prefixes()]
    if not missing:
        return ""
    names = " ".join(
        f"ros-{os.environ.get('ROS_DISTRO', 'jazzy')}-{each.replace('_', '-')}" for each in missing
    )
    return f"ROS packages are missing: {', '.join(missing)}. Run: sudo apt install {names}"


@contextmanager
def program(log: Path, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """A program with this checkout's packages in a process group of its own, ended as Ctrl-C does."""
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    with log.open("w") as out:
        process = subprocess.Popen(
            words, env=os.environ | {"PYTHONPATH": path, "TMPDIR": str(log.parent)},
            stdout=out, stderr=out, start_new_session=True,
        )  # fmt: skip
        try:
            yield process
        finally:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


@contextmanager
def manager(
    folder: Path, controller: str = JTC, from_desired: bool = True, update_hz: int = 500, lag_rad: float = 0.0
) -> Iterator[subprocess.Popen[bytes]]:
    """bringup.launch.py of the example. lag_rad: how far its states stay behind the commands."""
    files = folder / "ros2_control"
    shutil.copytree(FILES, files, dirs_exist_ok=True)
    text = (FILES / "controllers.yaml").read_text().replace("update_rate: 500", f"update_rate: {update_hz}")
    flag = f"interpolate_from_desired_state: {str(from_desired).lower()}"
    (files / "controllers.yaml").write_text(text.replace("interpolate_from_desired_state: true", flag))
    urdf, behind = (
        (FILES / "sim_arm.urdf").read_text(),
        f'<param name="position_state_following_offset">{-lag_rad}</param>',
    )
    (files / "sim_arm.urdf").write_text(urdf.replace("</plugin>", f"</plugin>{behind if lag_rad else ''}"))
    launch = (files / "bringup.launch.py", f"controller:={controller}")
    ros2 = (sys.executable, str(shutil.which("ros2")), "launch")
    with program(folder / "manager.log", *ros2, *map(str, launch)) as process:
        yield process


def driver(folder: Path, controller: str, output: str = "auto") -> Any:
    """The node controller_driver, as a context manager."""
    settings = (
        "controller_driver",
        "robot=sim_arm",
        f"controller={controller}",
        f"output={output}",
        "bus=rclpy",
    )
    return program(folder / "driver.log", sys.executable, "-m", "robo_rl.apps.node", *settings)


@dataclass
class Probe:
    """A node of rclpy that commands, and keeps what the controller says of itself."""

    controller: str
    names: tuple[str, ...] = tuple(PLACE)
    status: list[tuple[int, str]] = field(default_factory=list)
    raw: list[bytes] = field(default_factory=list)
    states: int = 0
    launch_pid: int = 0  # of the process that started the controller manager

    def __post_init__(self) -> None:
        import rclpy
        from control_msgs.msg import JointTrajectoryControllerState
        from diagnostic_msgs.msg import DiagnosticArray
        from sensor_msgs.msg import JointState
        from std_msgs.msg import Bool
        from trajectory_msgs.msg import JointTrajectory, JointTrajectoryPoint

        self._message, self._point, self.context = JointTrajectory, JointTrajectoryPoint, rclpy.Context()
        self.context.init()
        node = self.node = rclpy.create_node("probe", context=self.context)
        self._executor = rclpy.executors.SingleThreadedExecutor(context=self.context)
        self._executor.add_node(node)
        self.kind = JointTrajectoryControllerState if self.controller == JTC else JointState
        topic = f"{JTC}/controller_state" if self.controller == JTC else "joint_states"
        node.create_subscription(self.kind, topic, self._on_state, 200, raw=True)
        node.create_subscription(DiagnosticArray, "driver/status", self._on_status, 9)
        self._flag, self._stop = Bool, node.create_publisher(Bool, "estop", 1)
        self._publishers: dict[str, Any] = {}  # made when needed: the filter accepts one a topic

    def _on_state(self, message: bytes) -> None:
        self.states += 1
        self.raw.append(message)

    def _on_status(self, message: Any) -> None:
        self.status.append((message.status[0].level[0], message.status[0].message))

    def send(self, place_rad: float, way: RealWay) -> None:
        """One waypoint for all joints: on command/safe for `driver`, on command/raw for `policy`."""
        period_s = (2.0 if way == "single2" else 1.0) * PERIOD_S
        point = self._point(positions=[place_rad, *list(PLACE.values())[1:]])
        point.time_from_start.nanosec = round(1e9 * period_s)
        message = self._message(joint_names=list(PLACE), points=[point])
        message.header.stamp = self._node_time() if way == "policy" else message.header.stamp
        topic = {"driver": "command/safe", "policy": "command/raw"}.get(way, f"{JTC}/joint_trajectory")
        if topic not in self._publishers:
            self._publishers[topic] = self.node.create_publisher(self._message, topic, 1)
        self._publishers[topic].publish(message)

    def _node_time(self) -> Any:
        return self.node.get_clock().now().to_msg()

    def press_emergency_stop(self) -> None:
        """As `ros2 topic pub --once /estop std_msgs/msg/Bool "{data: true}"` does."""
        self._stop.publish(self._flag(data=True))

    def spin(self, seconds: float, true: Callable[[], bool] = lambda: False) -> bool:
        """Receive until `true` or the end of the time."""
        end_s = time.monotonic() + seconds
        while not true() and (left_s := end_s - time.monotonic()) > 0.0:
            self._executor.spin_once(timeout_sec=left_s)
        return true()

    def stream(self, seconds: float, way: RealWay, target: Callable[[float], float]) -> float:
        """Send target(time [s]) every period; returns the wall clock's time at the beginning [s]."""
        begin_s, wall_s = time.monotonic(), time.time()
        for i in range(round(seconds / PERIOD_S)):
            self.spin(begin_s + i * PERIOD_S - time.monotonic())
            self.send(target(time.monotonic() - begin_s), way)
        return wall_s

    def listen_to_joints(self) -> dict[str, float]:
        """Position of each joint by its name, kept up to date [rad]."""
        from sensor_msgs.msg import JointState

        places: dict[str, float] = {}
        keep = lambda state: places.update(zip(state.name, state.position, strict=True))  # noqa: E731
        self.node.create_subscription(JointState, "joint_states", keep, 1)
        return places

    def samples(self) -> np.ndarray:
        """(stamp [s], commanded position of the first joint [rad]) of each update."""
        from rclpy.serialization import deserialize_message

        rows = []
        for message in (deserialize_message(each, self.kind) for each in self.raw):
            stamp_s = message.header.stamp.sec + 1e-9 * message.header.stamp.nanosec
            if self.controller == JTC:
                rows.append((stamp_s, message.reference.positions[0]))
            else:
                rows.append((stamp_s, message.position[message.name.index("base")]))
        return np.array(rows)

    def close(self) -> None:
        self._executor.shutdown()
        self.node.destroy_node()
        self.context.shutdown()


def prioritise(pids: Iterable[int]) -> None:
    """Schedule these processes before others of a busy machine (SCHED_FIFO 20), where that is permitted."""
    for task in (task for pid in pids for task in Path(f"/proc/{pid}/task").iterdir()):
        with suppress(PermissionError, ProcessLookupError):
            if os.sched_getscheduler(int(task.name)) == os.SCHED_OTHER:  # the manager's own thread is above
                os.sched_setscheduler(int(task.name), os.SCHED_FIFO, os.sched_param(20))


def children(pid: int) -> list[int]:
    """Child processes of this one."""
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def real_motion(
    way: RealWay, controller: str = JTC, from_desired: bool = True, output: str = "auto"
) -> Motion:
    """Motion of the real controller at 1 kHz, with states 48 mrad behind, as of a servo that lags 48 ms."""
    update_hz = 1000
    with tempfile.TemporaryDirectory(prefix="robo-rl-") as name:
        folder = Path(name)
        with ExitStack() as stack:
            lag_rad = SPEED_RAD_S * LAG_S
            launch = stack.enter_context(manager(folder, controller, from_desired, update_hz, lag_rad))
            node = stack.enter_context(driver(folder, controller, output)) if way == "driver" else None
            probe = Probe(controller)
            stack.callback(probe.close)
            _wait(probe, way, folder)
            prioritise([os.getpid(), *children(launch.pid), *([node.pid] if node else [])])
            try:
                return _moved(probe, way, update_hz)
            finally:
                os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


def _wait(probe: Probe, way: RealWay, folder: Path) -> None:
    """Wait for the controller, and for its driver if it is used."""

    def ready() -> bool:
        return probe.states > 0 and (way != "driver" or (0, "follows commands") in probe.status)

    if not probe.spin(START_S, ready):
        logs = "".join(path.read_text() for path in folder.glob("*.log"))
        raise RuntimeError(f"The controller or its driver does not run. {logs}")


def _moved(probe: Probe, way: RealWay, update_hz: int) -> Motion:
    probe.stream(1.0, way, lambda now_s: 0.0)
    probe.raw.clear()
    begin_s = probe.stream(MOVE_S, way, lambda now_s: SPEED_RAD_S * now_s)
    rows = probe.samples()
    rows = rows[(rows[:, 0] > begin_s + SETTLE_S) & (rows[:, 0] < begin_s + MOVE_S)]
    gaps_s, steps = np.diff(rows[:, 0]), np.diff(rows[:, 1])
    # Some updates come late or are not seen, so the motion of further cycles is taken off.
    per_cycle = np.abs(steps - SPEED_RAD_S * (gaps_s - 1.0 / update_hz))
    offset_s = 0.0 if probe.controller == JTC else LAG_S  # joint_states are behind the commands
    behind_s = rows[:, 0] - begin_s - rows[:, 1] / SPEED_RAD_S - offset_s
    return Motion(1e3 * float(per_cycle.max()), 1e3 * float(behind_s.mean()))
