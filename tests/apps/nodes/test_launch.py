"""Launch files with a fake launch that has the documented signatures; the real one is in
test_ros_launch.py.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hardware.bus.names import domain_id
from policies.deploy.bundle import Bundle
from robo_rl.apps.nodes import node_life, ros_launch
from robo_rl.apps.nodes.node_sets import MODULE, load_set
from robo_rl.core.errors import BusError, ConfigError, MissingDependencyError
from robo_rl.core.process_signals import ASK
from tests.apps.nodes import fake_launch
from tests.apps.nodes.fake_launch import (
    GIVEN,
    LAUNCH,
    Context,
    DeclareLaunchArgument,
    describe,
    launch,
    launch_in,
)
from tests.hardware.bundles import rates_bundle

FILES = {"arm": "arm", "quad": "quad", "teleop": "teleop", "sim": "arm_sim"}
CHECK = ros_launch._check
pytestmark = pytest.mark.usefixtures("fake_ros")


@pytest.fixture(scope="module")
def rates(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """A flight bundle of thrust and body rates."""
    return rates_bundle(tmp_path_factory.mktemp("rates") / "bundle")


def test_launch_files_load_in_the_python_of_ros() -> None:
    """ROS' Python has PyYAML; this project's packages may be in a virtual environment that only the nodes
    use.
    """
    code = (
        "import sys; sys.modules |= dict.fromkeys(('numpy', 'torch', 'omegaconf', 'hydra'))\n"
        "from robo_rl.apps.nodes.ros_launch import load_set; load_set('arm_sim').commands({'robot': "
        "'sim_arm'})"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_there_are_no_other_launch_files() -> None:
    """The folder is no package, because ROS 2 owns the name."""
    found = {path.name for path in LAUNCH.iterdir() if path.name != "__pycache__"}
    assert found == {f"{n}.launch.py" for n in FILES} == set(ros_launch.FILES)


@pytest.mark.parametrize(("file", "name"), FILES.items())
def test_launch_starts_the_nodes_of_up(file: str, name: str) -> None:
    """Same nodes, same settings, one source; each as `python3 -m`, which colcon builds and pip installs both
    have.
    """
    chosen = load_set(name)
    given = {key: GIVEN[key] for key in GIVEN if key in {argument.name for argument in chosen.arguments}}
    nodes = launch(describe(file), **given)
    expected = chosen.commands(given)
    assert [node.name for node in nodes] == list(expected)
    for node in nodes:
        assert (node.executable, node.package) == ("python3", None)
        started = ["-m", ros_launch.PROCESS, str(os.getpid()), MODULE]  # ends with this process
        assert node.arguments == [*started, *expected[node.name], "bus=rclpy"]
        assert node.exec_name == node.name  # labels its lines
        assert not node.respawn
        assert node.output == "screen"
        assert node.sigterm_timeout_s > 5.0  # braking takes 5 s at most
        assert node.namespace is None


@pytest.mark.parametrize("file", ["sim.launch.py", "bringup.launch.py"])
def test_unknown_arguments_are_reported(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    """launch accepts any name. Where another file includes this one, they may be its own arguments."""
    monkeypatch.setattr(sys, "argv", ["ros2", "launch", "robo_rl", file, "amr:=false", "bundel:=/b"])
    launch(describe("sim"), amr="false", bundel="/b")
    said = [line for line in capsys.readouterr().out.splitlines() if "unknown" in line]
    expected = [
        "launch: the argument 'amr' is unknown and has no effect. Did you mean 'arm'?",
        "launch: the argument 'bundel' is unknown and has no effect. Did you mean 'bundle'?",
    ]
    assert said == (expected if file in ros_launch.FILES else [])


def test_ended_node_fails_the_launch() -> None:
    """`ros2 launch` must not return 0 after a node was killed; a requested stop is no error."""
    node = launch(describe("sim"))[-1]
    killed = SimpleNamespace(returncode=-9)
    with pytest.raises(BusError, match=f"{node.name} has ended by itself .killed by SIGKILL"):
        node.on_exit(killed, SimpleNamespace(is_shutdown=False))
    assert node.on_exit(killed, SimpleNamespace(is_shutdown=True)) is None


def test_interrupt_of_the_launch_alone_asks_every_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """launch sends no signal after SIGINT: it assumes that of a terminal. A process that starts later is
    asked as well, and programs of ROS get SIGINT.
    """
    (urdf := tmp_path / "arm.urdf").write_text("<robot/>")
    monkeypatch.setitem(fake_launch.PREFIXES, "robot_state_publisher", "/opt/ros")
    nodes = launch_in(context := Context({"urdf": str(urdf)}), describe("sim"))
    publisher, *ours, late = nodes
    assert [fake_launch.start(context, node) for node in (publisher, *ours)] == [[]] * len(nodes[:-1])
    asked = fake_launch.shut_down(context, nodes, due_to_sigint=True)
    assert asked == [(publisher, signal.SIGINT), *((node, ASK) for node in ours)]
    assert fake_launch.start(context, late) == [(late, ASK)]


@pytest.mark.parametrize(("due_to_sigint", "noninteractive"), [(False, False), (True, True)])
def test_no_signal_is_sent_twice(due_to_sigint: bool, noninteractive: bool) -> None:
    """launch itself sends SIGINT to the nodes."""
    nodes = launch_in(context := Context(noninteractive=noninteractive), describe("sim"))
    assert [fake_launch.start(context, node) for node in nodes] == [[]] * len(nodes)
    assert fake_launch.shut_down(context, nodes, due_to_sigint) == []


def test_interrupt_ends_no_task_of_launch() -> None:
    """A node whose task ended would run on without a signal, and `ros2 launch` would wait for it for ever."""

    async def launching() -> bool:
        launch(describe("sim"))
        try:
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.sleep(0)
        except KeyboardInterrupt:
            return False
        return True

    before = signal.getsignal(signal.SIGINT)
    loop = asyncio.new_event_loop()
    try:
        assert loop.run_until_complete(launching())
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)
        loop.close()


def test_second_launch_of_a_robot_is_refused(tmp_path: Path) -> None:
    """By any process of this machine, also by `robo-rl up`; another namespace is another robot."""
    hold = "from robo_rl.apps.nodes.supervise import namespace_lock; "
    hold += "lock = namespace_lock({}, 'left'); print(1); input()"
    with subprocess.Popen(
        [sys.executable, "-c", hold.format(domain_id(None))],
        env=os.environ | {"TMPDIR": str(tmp_path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"1\n"
        with pytest.raises(
            BusError,
            match=r"Another `robo-rl up`, `robo-rl record` or `ros2 launch` runs in .* '/left'|'left'",
        ):
            launch(describe("sim"), namespace="left")
        launch(describe("sim"), namespace="right")
        other.kill()
        other.wait()
        launch(describe("sim"), namespace="left")


def test_namespace_and_bus_reach_every_node() -> None:
    nodes = launch(describe("sim"), namespace="left")
    assert {node.namespace for node in nodes} == {"left"}
    assert all(node.arguments[-1] == "bus=rclpy" for node in nodes)


def test_without_rclpy_the_namespace_is_a_setting() -> None:
    """Without rclpy `--ros-args` is not read: two robots would share one filter's topics."""
    nodes = launch(describe("sim"), namespace="left", bus="dds")
    assert all(node.arguments[-2:] == ["bus=dds", "namespace=left"] for node in nodes)


def test_unknown_bus_starts_no_node() -> None:
    """Each node would refuse it in a line of its own."""
    with pytest.raises(RuntimeError, match='"bus" provided value "cyclone" is not valid'):
        launch(describe("sim"), bus="cyclone")


@pytest.mark.parametrize("bus", ["rclpy", "dds"])
def test_controller_argument_starts_controller_driver(bus: str) -> None:
    """Not the filter's single waypoints by remapping: the controller would go back at each of them."""
    nodes = launch(describe("arm"), **GIVEN, bus=bus, controller="jtc", output="trajectory")
    (driver,) = [node for node in nodes if node.name == "controller_driver"]
    assert driver.arguments[5:8] == ["robot=ur5e", "controller=jtc", "output=trajectory"]
    assert "controller_driver" not in {node.name for node in launch(describe("arm"), **GIVEN)}


def given_as_parameters(node: Any) -> dict[str, Any]:
    """ROS parameters that the launch gives, without files."""
    merged: dict[str, Any] = {}
    for part in node.parameters:
        merged |= part if isinstance(part, dict) else {}
    return {key: getattr(value, "value", value) for key, value in merged.items()}


@pytest.mark.parametrize("file", FILES)
def test_simulated_time_reaches_every_node(file: str) -> None:
    chosen = {
        key: value
        for key, value in GIVEN.items()
        if (file, key) not in {("quad", "robot"), ("teleop", "bundle")}
    }
    for text, value in (("true", True), ("false", False)):
        nodes = launch(describe(file), **chosen, use_sim_time=text)
        assert [given_as_parameters(node)["use_sim_time"] for node in nodes] == [value] * len(nodes)


def test_params_file_overrides_defaults_but_not_arguments(tmp_path: Path) -> None:
    """ROS lets later parameters win. Defaults of the set are words, which lose to any parameter."""
    (file := tmp_path / "p.yaml").touch()
    nodes = {n.name: n for n in launch(describe("sim"), params_file=str(file), goal="[0.1]", cameras="view")}
    assert all(node.parameters[0] == str(file) for node in nodes.values())
    assert given_as_parameters(nodes["task"]) == {"use_sim_time": False, "goal": "[0.1]"}
    assert given_as_parameters(nodes["sim_robot"]) == {"use_sim_time": False, "cameras": "view"}
    assert given_as_parameters(nodes["safety_filter"]) == {"use_sim_time": False}  # arm=true is the set's
    assert "arm=true" in nodes["safety_filter"].arguments
    camera = {n.name: n for n in launch(describe("arm"), **GIVEN, camera="0", camera_name="wrist")}["camera"]
    assert given_as_parameters(camera) == {"use_sim_time": False, "source": "0", "camera": "wrist"}


@pytest.mark.parametrize("empty", ["''", '""'])
def test_quotes_alone_are_an_empty_value(empty: str) -> None:
    """`ros2 launch` refuses `goal:=`; in a shell it is `goal:="''"`."""
    names = {node.name for node in launch(describe("sim"), goal=empty)}
    assert "task" not in names
    assert "sim_robot" in names
    held = {node.name for node in launch(describe("teleop"), robot="sim_arm", record=empty)}
    assert "recorder" not in held
    seen = {node.name: node for node in launch(describe("sim"), cameras=empty)}
    assert "cameras=" in seen["sim_robot"].arguments


def test_missing_params_file_is_refused() -> None:
    """Launch itself warns, and starts the nodes without it."""
    with pytest.raises(ConfigError, match=r"params_file:=/none\.yaml is no file"):
        launch(describe("sim"), params_file="/none.yaml")


@pytest.mark.parametrize("given", [{"params_file": __file__}, {"use_sim_time": "true"}])
def test_parameters_without_rclpy_are_refused(given: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=f"{next(iter(given))}:=.* needs bus:=rclpy"):
        launch(describe("sim"), bus="dds", **given)
    assert all(node.parameters == [] for node in launch(describe("sim"), bus="dds"))


def test_a_urdf_starts_robot_state_publisher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the package is missing, nothing starts, and the launch says what to install."""
    (urdf := tmp_path / "arm.urdf").write_text("<robot name='arm: 1'/>")
    with pytest.raises(MissingDependencyError, match="sudo apt install ros-jazzy-robot-state-publisher"):
        launch(describe("sim"), urdf=str(urdf))
    monkeypatch.setitem(fake_launch.PREFIXES, "robot_state_publisher", "/opt/ros/jazzy")
    nodes = launch(describe("sim"), urdf=str(urdf), namespace="left", use_sim_time="true")
    model = next(node for node in nodes if node.package == "robot_state_publisher")
    assert (model.executable, model.namespace, model.on_exit) == ("robot_state_publisher", "left", None)
    assert model.remappings == [
        ("/tf", "tf"),
        ("/tf_static", "tf_static"),
    ]  # in the namespace, as joint_states
    assert given_as_parameters(model) == {"robot_description": "<robot name='arm: 1'/>", "use_sim_time": True}
    assert model.parameters[0]["robot_description"].value_type is str  # a colon would be YAML otherwise
    assert not any(node.package for node in launch(describe("sim"), namespace="right"))


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("no.urdf", None, "cannot be read"),
        ("arm.yaml", "joints: []", "has no <robot> element"),
        ("arm.urdf.xacro", "<robot/>", "Run: xacro .*arm.urdf.xacro > .*arm.urdf"),
    ],
)
def test_invalid_urdf_is_refused(tmp_path: Path, name: str, text: str | None, said: str) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError, match=said):
        launch(describe("sim"), urdf=str(tmp_path / name))


def test_flight_filter_has_time_to_land() -> None:
    """SIGTERM is a second request: the motors would stop in the air."""
    stops_s = {node.name: node.sigterm_timeout_s for node in launch(describe("quad"), bundle="/b")}
    assert stops_s["flight_filter"] > node_life.REST_S
    assert stops_s["quad_policy"] < 10.0


def test_sim_launch_accepts_both_sets() -> None:
    """The quadcopter needs a bundle, and the message says so; the arm does not."""
    assert "safety_filter" in [node.name for node in launch(describe("sim"))]
    assert "flight_filter" in [node.name for node in launch(describe("sim"), set="quad_sim", bundle="/b")]
    with pytest.raises(ConfigError, match=r"'quad_sim' needs bundle:=\.\.\.: ") as said:
        launch(describe("sim"), set="quad_sim")
    assert str(said.value).endswith("ros2 launch robo_rl sim.launch.py set:=quad_sim bundle:=...")


def test_optional_nodes_need_their_argument() -> None:
    names = [node.name for node in launch(describe("arm"), **GIVEN, camera="0", record="/d")]
    assert {"camera", "recorder"} <= set(names)
    assert not {"camera", "recorder"} & {node.name for node in launch(describe("arm"), **GIVEN)}


def test_one_node_per_camera() -> None:
    """Each has its own name in the graph and its own topic."""
    cameras = {"camera": "0+/dev/video2", "camera_name": "wrist+front"}
    nodes = {node.name: node.arguments for node in launch(describe("arm"), **GIVEN, **cameras, record="/d")}
    assert {"source=0", "camera=wrist", "name=camera_wrist"} <= set(nodes["camera_wrist"])
    assert {"source=/dev/video2", "camera=front", "name=camera_front"} <= set(nodes["camera_front"])
    assert "cameras=wrist+front" in nodes["recorder"]


@pytest.mark.parametrize(("file", "missing"), [("arm", "bundle"), ("quad", "bundle"), ("teleop", "robot")])
def test_required_arguments(file: str, missing: str) -> None:
    with pytest.raises(RuntimeError, match=f"Required launch argument '{missing}'"):
        launch(describe(file))


@pytest.mark.parametrize("file", FILES)
def test_arguments_are_described(file: str) -> None:
    """`ros2 launch robo_rl arm.launch.py --show-args` lists them with their meaning."""
    declared = [entity for entity in describe(file).entities if isinstance(entity, DeclareLaunchArgument)]
    assert {"namespace", "bus", "use_sim_time", "params_file", "urdf"} <= {
        argument.name for argument in declared
    }
    assert len({argument.name for argument in declared}) == len(declared)
    for argument in declared:  # launch goes on with ". Valid choices are: ..."
        assert ".;" not in argument.description
        assert not argument.description.endswith(".")


@pytest.fixture
def checked(fake_ros: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check of the nodes, by this Python."""
    monkeypatch.setattr(ros_launch, "_check", CHECK)
    monkeypatch.setattr(ros_launch, "PYTHON", sys.executable)


@pytest.mark.usefixtures("checked")
def test_launch_makes_the_checks_of_up(rates: Bundle, tmp_path: Path) -> None:
    """Without the height of the ground a landing would never end: nothing starts. A parameter file counts."""
    (driver := tmp_path / "cf.yaml").write_text("driver: crazyflie\nuri: radio://0/80/2M/E7E7E7E7E7\n")
    given = {"bundle": str(rates.folder), "driver": str(driver)}
    with pytest.raises(ConfigError, match=r"^The height of the ground is not known, .* ground:=-0\.6"):
        launch(describe("quad"), **given)
    with pytest.raises(ConfigError, match=r"nofile\.yaml is not there"):
        launch(describe("teleop"), robot="sim_arm", driver="nofile.yaml")
    assert not ros_launch._LOCKS
    assert launch(describe("quad"), **given, ground="-0.4")
    file = tmp_path / "p.yaml"
    for key in ("/**/robot_driver", "/**", "/lab/robot_driver", "/*:\n  robot_driver"):
        file.write_text(f"{key}:\n{'  ' * (1 + key.count(':'))}ros__parameters: {{ground_m: -0.4}}\n")
        assert launch(describe("quad"), **given, params_file=str(file), namespace="lab")
    file.write_text("/robot_driver:\n  ros__parameters: {ground_m: -0.4}\n")  # of no namespace
    with pytest.raises(ConfigError, match="ground"):
        launch(describe("quad"), **given, params_file=str(file), namespace="lab")


def test_check_that_lacks_a_package_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "numpy.py").write_text("raise ModuleNotFoundError(\"No module named 'numpy'\", name='numpy')")
    monkeypatch.setattr(ros_launch, "PYTHON", sys.executable)
    paths = os.pathsep.join([str(tmp_path), str(LAUNCH.parent)])
    context = SimpleNamespace(environment=os.environ | {"PYTHONPATH": paths})
    with pytest.raises(ConfigError, match=r"No module named 'numpy'\): install robo-rl's packages"):
        CHECK(load_set("teleop").commands({"robot": "sim_arm"}), context)


def test_check_needs_no_packages_that_robots_lack(rates: Bundle) -> None:
    """Simulator, training and settings packages; nor those with which the nodes infer."""
    absent = ("torch", "mujoco", "hydra", "omegaconf", "onnxruntime", "onnx", "safetensors", "scipy", "cv2")
    words = load_set("quad").commands({"bundle": str(rates.folder)})
    code = (
        f"import json, sys; sys.modules |= dict.fromkeys({absent}); "
        f"from robo_rl.apps.nodes.preflight import main; sys.exit(main([json.dumps({words}), 'launch']))"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
