"""With a real ROS 2: parameters, simulated time and the robot's URDF, by `ros2 param` and `ros2 launch`.

Skipped where no ROS 2 is sourced. Run: source /opt/ros/jazzy/setup.bash && python3 -m pytest -m ros
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
import yaml

pytest.importorskip("ros2cli", reason="no ROS 2 is sourced here: ros2cli is missing")

from hardware.bus.choose import make_bus
from hardware.bus.protocol import Profile
from hardware.messages import Text
from hardware.topics import JOINT_STATES
from tests.hardware.bus.test_ros_cli import ROOT, answer, ros2

pytestmark = pytest.mark.ros
CYCLONE = pytest.mark.skipif(
    os.environ.get("RMW_IMPLEMENTATION") != "rmw_cyclonedds_cpp",
    reason="nodes without ROS answer services of rmw_cyclonedds_cpp alone: set RMW_IMPLEMENTATION",
)
SOON_S = 30.0


@contextmanager
def running(*words: str, log: Path) -> Iterator[subprocess.Popen[str]]:
    """A program with this checkout's packages, ended as Ctrl-C does."""
    with log.open("w") as out:
        process = subprocess.Popen(
            words, env=os.environ | {"PYTHONPATH": f"{ROOT}:{os.environ['PYTHONPATH']}",
            "TMPDIR": str(log.parent)}, stdout=out, stderr=out, text=True,
        )  # fmt: skip
        try:
            yield process
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(SOON_S)


def node(log: Path, *words: str) -> AbstractContextManager[subprocess.Popen[str]]:
    return running(sys.executable, "-m", "robo_rl.apps.node", *words, log=log)


def param(*words: str) -> str:
    """Output of `ros2 param`. Fails when a node that was found lacks services: it waits 5 s for each such
    node, and says so. How long the command itself takes depends on what else runs.
    """
    said = answer("param", *words)
    assert "timed out" not in said, said
    return said


@pytest.mark.parametrize("bus", ["rclpy", pytest.param("dds", marks=CYCLONE)])
def test_ros2_param_dump_shows_every_setting(domain: int, tmp_path: Path, bus: str) -> None:
    """Also for nodes without ROS, for which it would otherwise wait 5 s each."""
    with node(
        tmp_path / "a.log", "flight_filter", "level=motors", f"bundle={bundle(tmp_path)}", f"bus={bus}"
    ):
        assert "Double value is: 100.0" in param("get", "/flight_filter", "command_hz")
        listed = param("list", "/flight_filter").split()
        assert {"bundle", "level", "max_tilt_rad", "fence_m", "arm"} <= set(listed)
        described = param("describe", "/flight_filter", "max_tilt_rad")
        assert "largest tilt that any bundle may ask for, rad" in described
        assert "Type: double" in described
        assert "Read only: true" in described
        assert "Double values are: [10.0, 10.0, 10.0]" in param("get", "/flight_filter", "fence_m")
        assert "Parameter not set" in param("get", "/flight_filter", "ground_m")
        assert "failed" in param("set", "/flight_filter", "max_tilt_rad", "3.0")
        assert "Double value is: 2.1" in param("get", "/flight_filter", "max_tilt_rad")
        assert "Type: double" in param("describe", "/flight_filter", "ground_m")
        said = param("dump", "/flight_filter").splitlines()
        text = "\n".join(line for line in said if not line.startswith("["))  # without warnings of the RMW
        dumped = yaml.safe_load(text)["/flight_filter"]["ros__parameters"]
        assert {"bundle", "level", "max_tilt_rad", "fence_m", "arm", "craft"} <= set(dumped)
        assert (dumped["ground_m"], dumped["max_tilt_rad"]) == (None, 2.1)


@CYCLONE
def test_nodes_without_ros_do_not_delay_ros2_param_list(domain: int, tmp_path: Path) -> None:
    with (
        node(tmp_path / "a.log", "task", "goal=[0.1]", "bus=dds"),
        node(tmp_path / "b.log", "diagnostics", "bus=dds"),
        node(tmp_path / "c.log", "task", "words=go", "bus=dds", "name=words"),
    ):
        param("list", "/words")
        param("list", "/task")
        assert "/task:\n  goal\n  words" in param("list")


def test_parameter_file_configures_a_node(domain: int, tmp_path: Path) -> None:
    (file := tmp_path / "p.yaml").write_text(
        "/**:\n  ros__parameters: {goal: [1, 2], wrods: go}\ntask:\n  ros__parameters: {words: 3}\n"
    )
    with node(tmp_path / "a.log", "task", "goal=[5]", "bus=rclpy", "--ros-args", "--params-file", str(file)):
        assert "Double values are: [1.0, 2.0]" in param("get", "/task", "goal")
        assert "String value is: 3" in param("get", "/task", "words")
    assert (
        "'wrods' is no setting of this node and has no effect. Did you mean 'words'?"
        in (tmp_path / "a.log").read_text()
    )
    wrong = subprocess.run(
        [sys.executable, "-m", "robo_rl.apps.node", "task", "bus=rclpy", "--ros-args", "-p", "goal:=high"],
        capture_output=True, text=True, timeout=SOON_S, check=False,
    )  # fmt: skip
    assert wrong.returncode != 0
    assert "goal=high cannot be used, expected: [number, ...]" in wrong.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--params-file", "none.yaml"), "Couldn't parse params file: '--params-file none.yaml'"),
        (("-p", "goal:=[1,"), "Couldn't parse parameter override rule: '-p goal:=[1,'"),
        (("--bogus",), "['--bogus']"),
        (("-p", "goal:=[]"), "ROS refuses a parameter with an empty list"),
        (("-r", "__ns:=/left/"), "invalid node namespace"),
    ],
)
def test_arguments_that_ros_refuses_are_one_error(domain: int, words: tuple[str, ...], said: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "robo_rl.apps.node", "task", "bus=rclpy", "--ros-args", *words],
        capture_output=True, text=True, timeout=SOON_S, check=False,
    )  # fmt: skip
    assert ran.returncode != 0
    assert said in ran.stderr
    assert "Check the arguments after --ros-args" in ran.stderr
    assert "Traceback" not in ran.stderr
    assert ".c:" not in ran.stderr.splitlines()[-1]


PUBLISHER = """#!{python}
import rclpy
from rclpy.node import Node
from std_msgs.msg import String
rclpy.init()
node = Node("robot_state_publisher", automatically_declare_parameters_from_overrides=True)
latched = rclpy.qos.QoSProfile(depth=1, durability=rclpy.qos.DurabilityPolicy.TRANSIENT_LOCAL)
text = node.get_parameter("robot_description").value
node.create_publisher(String, "robot_description", latched).publish(String(data=text))
rclpy.spin(node)
"""


@pytest.fixture
def publisher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The real robot_state_publisher, else one that publishes its parameter robot_description."""
    from ament_index_python.packages import get_packages_with_prefixes

    if "robot_state_publisher" in get_packages_with_prefixes():
        return
    prefix = tmp_path / "prefix"
    for folder in ("share/ament_index/resource_index/packages", "lib/robot_state_publisher"):
        (prefix / folder).mkdir(parents=True)
    (prefix / "share/ament_index/resource_index/packages/robot_state_publisher").touch()
    program = prefix / "lib/robot_state_publisher/robot_state_publisher"
    program.write_text(PUBLISHER.format(python=sys.executable))
    program.chmod(0o755)
    monkeypatch.setenv("AMENT_PREFIX_PATH", f"{prefix}:{os.environ['AMENT_PREFIX_PATH']}")


def test_launch_accepts_params_file_use_sim_time_and_urdf(
    domain: int, tmp_path: Path, publisher: None
) -> None:
    """The file overrides the set's defaults; arguments override the file; stamps are those of /clock."""
    (file := tmp_path / "p.yaml").write_text(
        "/**/sim_robot:\n  ros__parameters: {state_hz: 50.0, senses: depth}\n"
        "/**/safety_filter:\n  ros__parameters: {arm: false}\n"
    )
    (urdf := tmp_path / "arm.urdf").write_text('<robot name="arm"><link name="base: 1"/></robot>')
    arguments = [
        f"params_file:={file}",
        f"urdf:={urdf}",
        "use_sim_time:=true",
        "senses:=rgb",
        "namespace:=left",
    ]
    with running(*ros2("launch", str(ROOT / "launch" / "sim.launch.py"), *arguments), log=tmp_path / "a.log"):
        bus = make_bus("listener", "left", "rclpy")
        stamps: list[float] = []
        described: list[str] = []
        JOINT_STATES.subscribe(bus, lambda state, _: stamps.append(state.stamp_s))
        bus.subscribe("robot_description", Text, Profile.LATCHED, lambda text, _: described.append(text.text))
        late_s = bus.now() + SOON_S
        bus.spin(lambda: (len(stamps) > 10 and bool(described)) or bus.now() > late_s)
        bus.close()
        assert described == ['<robot name="arm"><link name="base: 1"/></robot>']
        assert stamps[-1] == 0.0  # no /clock yet
        assert "Double value is: 50.0" in param("get", "/left/sim_robot", "state_hz")
        assert "String value is: rgb" in param("get", "/left/sim_robot", "senses")
        assert "Boolean value is: False" in param("get", "/left/safety_filter", "arm")
        assert "Boolean value is: True" in param("get", "/left/safety_filter", "use_sim_time")


def bundle(folder: Path) -> Path:
    """A small flight bundle; the test does not use its commands."""
    from tests.hardware.bundles import quad_bundle

    quad_bundle(folder / "bundle")
    return folder / "bundle"
