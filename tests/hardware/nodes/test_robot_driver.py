"""Driver nodes: commands of the filter reach the robot, and each of its states is published once."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from hardware.arms.bounds import JointLimits
from hardware.arms.simulated import SimulatedArmDriver
from hardware.arms.ur import UrDriver
from hardware.bus.in_process import InProcessWorld
from hardware.description import FOLDER, load_description
from hardware.driver import DriverSession
from hardware.messages import FlightCommand, JointState, JointTrajectory
from hardware.nodes.robot_driver import ArmDriverNode, QuadDriverNode
from hardware.nodes.shared.protocol import Node
from hardware.states import ArmState, BodyRates, QuadState, Setpoint
from hardware.topics import DRIVER_STATUS, FLIGHT_SAFE, JOINT_STATES, ODOM, SAFE
from robo_rl.apps.nodes import robot_builders
from robo_rl.apps.nodes.builders import sim_robot
from robo_rl.apps.nodes.robot_builders import read_settings, robot_driver
from robo_rl.conf.node import RobotDriverNodeConfig, SimRobotNodeConfig
from robo_rl.core.errors import ConfigError, DriverError, UnknownNameError
from tests.hardware.arm_descriptions import NAMES, arm, command
from tests.hardware.domains import free_domain
from tests.hardware.nodes.fakes import LagArm
from tests.hardware.peers import Peer, own_address

LIMITS = JointLimits((-1.0,) * 3, (1.0,) * 3, (2.0,) * 3)


def test_arm_follows_until_silence_and_after_connect() -> None:
    """Joints by name; after 0.1 s of silence the driver holds until ~/connect; a state is published once."""
    world, lag, said = InProcessWorld(), LagArm(), []
    bus, other = world.bus("robot_driver"), world.bus("other")
    driver = SimulatedArmDriver(lag, LIMITS, rate_hz=50.0, clock=world.now)
    node = ArmDriverNode(bus, driver, 100.0, arm(), said.append)
    assert isinstance(node, Node)
    bus.timer(0.01, lambda: lag.advance(0.01))
    say, places, words = SAFE.publisher(other), [], []
    JOINT_STATES.subscribe(other, lambda m, at: places.append(m))
    DRIVER_STATUS.subscribe(other, lambda m, at: words.append(m.status[0]))

    def speak(seconds: float, names: tuple[str, ...] = ("c", "b", "a")) -> None:
        end_s = world.now() + seconds
        while world.now() < end_s - 1e-9:
            say(command([0.3, 0.2, 0.1], names=names))
            until = world.now() + 0.02
            bus.spin(lambda until=until: world.now() >= until - 1e-9)  # type: ignore[misc]

    speak(0.6)
    assert lag.place == pytest.approx([0.1, 0.2, 0.3], abs=0.01)
    assert places[-1].names == ("a", "b", "c")
    end_s = world.now() + 0.3
    bus.spin(lambda: world.now() >= end_s)  # silence
    speak(0.1)
    assert said == [
        "The simulated arm was stopped or is not connected. Nothing was sent. Connect, then try again."
    ]
    assert words[-1].level == 2
    assert other.call("robot_driver/connect", 1.0) == (True, "connected")
    lag.reset()
    speak(0.5)
    assert lag.place == pytest.approx([0.1, 0.2, 0.3], abs=0.01)
    speak(0.1, names=("x", "y", "z"))
    assert "command/safe has no joint a, b, c" in said[-1]
    assert node.stop("Ctrl-C") == "Ctrl-C: the robot comes to rest"
    assert node.at_rest
    for _ in range(2):
        node.finish()


@pytest.fixture
def domain() -> Iterator[int]:
    with free_domain() as number:
        yield number


class SlowToConnect(SimulatedArmDriver):
    """Driver whose connection takes half a second of real time; commands sent meanwhile wait."""

    def connect(self) -> None:
        time.sleep(0.5)
        super().connect()


def test_command_received_while_connecting_is_dropped(domain: int) -> None:
    """On a real bus: the newest one stays in the reader until the node looks again."""
    pytest.importorskip("cyclonedds", reason="the bus without ROS (extra [dds])")
    from hardware.bus.dds.bus import DdsBus

    lag, made = LagArm(), partial(DdsBus, domain=domain)
    with closing(made("driver")) as bus, closing(made("filter")) as other:
        node, say = (
            ArmDriverNode(bus, SlowToConnect(lag, LIMITS, watchdog_s=9.0), 100.0, arm()),
            SAFE.publisher(other),
        )

        def obeyed(seconds: float) -> int:
            before, end_s = len(lag.commands), bus.now() + seconds
            bus.spin(lambda: bus.now() >= end_s)
            return len(lag.commands) - before

        obeyed(0.3)
        say(command([0.1, 0.1, 0.1]))
        assert obeyed(0.3) == 1
        threading.Timer(0.1, lambda: say(command([0.2, 0.2, 0.2]))).start()
        assert node._connect() == (True, "connected")
        assert obeyed(0.3) == 0
        say(command([0.1, 0.1, 0.1]))
        assert obeyed(0.3) == 1


def test_command_without_waypoints_is_refused() -> None:
    """Some programs stop controllers with one; the node continues."""
    world, said = InProcessWorld(), list[str]()
    bus, other = world.bus("robot_driver"), world.bus("other")
    ArmDriverNode(bus, SimulatedArmDriver(LagArm(), LIMITS, clock=world.now), 100.0, arm(), said.append)
    SAFE.publisher(other)(JointTrajectory(0.0, ("a", "b", "c"), np.zeros((0, 3)), np.zeros(0)))
    bus.spin(lambda: world.now() >= 0.1)
    assert said == ["command/safe has no waypoint. To stop the arm, call the filter's ~/stop."]


class Craft:
    """A quadcopter driver that records its calls; the test sets the age of its state."""

    names: tuple[str, ...] = ()

    def __init__(self) -> None:
        self.sent: list[Setpoint] = []
        self.stopped: list[str] = []
        self.received_s, self.flying, self.closed = 0.0, True, 0

    def connect(self) -> None:
        """Always there."""

    def read(self) -> QuadState:
        quarter = np.array([np.sqrt(0.5), 0.0, 0.0, np.sqrt(0.5)])  # nose to the left
        at, flying = np.array([1.0, 2.0, 3.0]), np.array([0.0, 1.0, 0.0])
        return QuadState(self.received_s, at, quarter, flying, np.array([0.1, 0.2, 0.3]), flying=self.flying)

    def write(self, setpoint: Setpoint) -> Setpoint:
        self.sent.append(setpoint)
        return setpoint

    def stop(self, reason: str) -> None:
        self.stopped.append(reason)

    def close(self) -> None:
        self.closed += 1


def test_craft_gets_thrust_and_rates_and_publishes_each_state_once() -> None:
    world, craft, odom = InProcessWorld(), Craft(), []
    bus, other = world.bus("robot_driver"), world.bus("other")
    node = QuadDriverNode(bus, craft, 100.0, "rates")
    ODOM.subscribe(other, lambda m, at: odom.append((at, m)))
    FLIGHT_SAFE.publisher(other)(FlightCommand(0.0, np.array([0.6, 0.1, -0.2, 0.3])))
    bus.spin(lambda: world.now() >= 0.5)
    sent = craft.sent[0]
    assert isinstance(sent, BodyRates)
    assert (sent.thrust, sent.rates_rad_s.tolist()) == (0.6, [0.1, -0.2, 0.3])
    assert len(odom) == 1  # the same state, fifty times: it must grow old
    assert odom[0][1].velocity_body_m_s == pytest.approx([1.0, 0.0, 0.0])  # the world's y is forwards
    craft.received_s = 0.45
    bus.spin(lambda: world.now() >= 0.6)
    message = odom[-1][1]
    assert len(odom) == 2
    assert bus.stamp() - message.stamp_s == pytest.approx(world.now() - 0.45, abs=1e-6)
    node.stop("Ctrl-C")
    assert not node.at_rest  # it lands
    craft.flying = False
    bus.spin(lambda: world.now() >= 0.7)
    assert node.at_rest
    node.finish()
    node.finish()
    assert (craft.stopped, craft.closed) == (["Ctrl-C", "the node ends"], 1)


def test_heights_count_from_the_origin_of_the_task() -> None:
    """The craft reports 3 m; a task whose ground lies 2.5 m below its origin has it at half a metre."""
    world, odom = InProcessWorld(), []
    bus, other = world.bus("robot_driver"), world.bus("other")
    QuadDriverNode(bus, Craft(), 100.0, "rates", ground_m=-2.5)
    ODOM.subscribe(other, lambda m, at: odom.append(m))
    bus.spin(lambda: world.now() >= 0.1)
    assert odom[0].position_m.tolist() == [1.0, 2.0, 0.5]


def test_fault_of_the_robot_is_reported_while_it_lasts() -> None:
    """An arm in an emergency stop follows no command, whether one comes or not."""
    world, lag, said, heard = InProcessWorld(), LagArm(), list[str](), list[tuple[int, str]]()
    bus, other = world.bus("robot_driver"), world.bus("other")

    class Stoppable(SimulatedArmDriver):
        fault = ""

        def read(self) -> ArmState:
            return replace(super().read(), fault=self.fault)

    driver = Stoppable(lag, LIMITS, rate_hz=50.0, clock=world.now)
    ArmDriverNode(bus, driver, 100.0, arm(), said.append)
    DRIVER_STATUS.subscribe(other, lambda m, at: heard.append((m.status[0].level, m.status[0].message)))
    bus.spin(lambda: world.now() >= 1.0)
    assert heard[-1] == (0, "follows commands")
    driver.fault = stopped = "the arm is in an emergency stop: release the button"
    bus.spin(lambda: world.now() >= 2.0)
    assert heard[-1] == (2, stopped)
    assert said == [f"{stopped}."]
    driver.fault = ""
    bus.spin(lambda: world.now() >= 2.1)
    assert heard[-1] == (0, "follows commands")


def test_motor_commands_are_refused_for_links() -> None:
    with pytest.raises(DriverError, match="Export it as C"):
        QuadDriverNode(InProcessWorld().bus("robot_driver"), Craft(), 100.0, "motors")


def test_driver_settings_come_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "arm.yaml"
    file.write_text("driver: ur\nhost: 10.0.0.2\nmodel: UR5e\n")
    assert read_settings(str(file)) == ("ur", {"host": "10.0.0.2", "model": "UR5e"})
    for text, error, sentence in (
        ("driver: urr\n", UnknownNameError, "Did you mean 'ur'"),
        ("host: 10.0.0.2\n", ConfigError, "must hold 'driver: <name>'"),
        ("a: [\n", ConfigError, "is not valid YAML"),
        ("driver: ros2_control\n", ConfigError, "has a node of its own: controller_driver"),
    ):
        file.write_text(text)
        with pytest.raises(error, match=sentence):
            read_settings(str(file))
    with pytest.raises(ConfigError, match="does not exist"):
        read_settings(str(tmp_path / "none.yaml"))
    file.write_text("driver: ur\nhost: 10.0.0.2\nwatchdog_s: soon\n")
    with pytest.raises(ConfigError, match=r"watchdog_s='soon': expected seconds above 0"):
        robot_driver(
            RobotDriverNodeConfig(settings=str(file), robot="sim_arm"), InProcessWorld().bus("robot_driver")
        )
    with pytest.raises(ConfigError, match="The driver 'ur' of an arm needs robot="):
        robot_driver(RobotDriverNodeConfig(settings=str(file)), InProcessWorld().bus("robot_driver"))


def described(folder: Path, names: tuple[str, ...] = UrDriver.names, state_hz: int = 100) -> str:
    """File with a description of these joints, at 2 rad/s; by default those of a UR."""
    limits = {"low_rad": -3.0, "high_rad": 3.0, "velocity_rad_s": 2.0, "acceleration_rad_s2": 20.0}
    joints = [{"name": name, **limits} for name in names]
    file = folder / "robot.json"
    file.write_text(json.dumps({"name": "ur", "command_hz": 50, "state_hz": state_hz, "joints": joints}))
    return str(file)


def test_description_of_other_joints_is_refused() -> None:
    """The limits of another robot would not bound this one."""
    driver = SimulatedArmDriver(LagArm(), LIMITS, rate_hz=50.0)
    with pytest.raises(ConfigError, match="The description 'sim_arm' has no joint a, b, c"):
        ArmDriverNode(InProcessWorld().bus("robot_driver"), driver, 100.0, load_description("sim_arm"))


def test_limits_of_description_and_device_both_apply() -> None:
    """A device of 6 rad/s with a description of 2 rad/s, commanded across its range: 40 mrad in 20 ms."""
    world, lag = InProcessWorld(), LagArm()
    fast = JointLimits((-3.0,) * 3, (3.0,) * 3, (6.0,) * 3)
    bus, other = world.bus("robot_driver"), world.bus("other")
    driver = SimulatedArmDriver(lag, fast, rate_hz=50.0, clock=world.now)
    ArmDriverNode(bus, driver, 100.0, arm())
    say, places = SAFE.publisher(other), iter([2.5, -2.5] * 200)
    other.timer(0.02, lambda: say(command(np.full(3, next(places)))))
    bus.spin(lambda: world.now() >= 2.0)
    steps = np.abs(np.diff([np.zeros(3), *lag.commands], axis=0))
    assert len(lag.commands) > 90
    assert steps.max() == pytest.approx(0.04)
    assert np.abs(lag.commands).max() <= 1.0


def test_driver_publishes_states_at_the_rate_of_the_description(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The filter takes a state as stale after 3 periods of this rate."""
    (tmp_path / "ur.yaml").write_text("driver: ur\nhost: 10.0.0.2\n")
    rates_hz = {}
    for given in (None, 20.0):
        world, seen = InProcessWorld(), []
        driver = SimulatedArmDriver(LagArm(), LIMITS, rate_hz=50.0, clock=world.now)
        monkeypatch.setattr(robot_builders, "open_driver", lambda *_, made=driver: DriverSession(made))
        bus, other = world.bus("robot_driver"), world.bus("other")
        file = described(tmp_path, NAMES, state_hz=250)
        robot_driver(
            RobotDriverNodeConfig(settings=str(tmp_path / "ur.yaml"), robot=file, state_hz=given), bus
        )
        JOINT_STATES.subscribe(other, lambda m, at, seen=seen: seen.append(m))
        bus.spin(lambda world=world: world.now() >= 1.0)
        rates_hz[given] = len(seen)
    assert rates_hz == {None: pytest.approx(250, abs=2), 20.0: pytest.approx(20, abs=2)}


def test_simulated_arm_has_range_speed_and_rate_of_its_description(tmp_path: Path) -> None:
    """An unknown program commands 2 rad on command/safe: the base goes to 0.5 rad, at 0.2 rad/s."""
    mine = yaml.safe_load((FOLDER / "sim_arm.yaml").read_text()) | {"state_hz": 200}
    for joint in mine["joints"]:
        joint |= {"velocity_rad_s": 0.2}
    mine["joints"][0] |= {"low_rad": -0.5, "high_rad": 0.5}
    (file := tmp_path / "mine.yaml").write_text(yaml.safe_dump(mine))
    world = InProcessWorld()
    bus, other = world.bus("sim_robot"), world.bus("other")
    sim_robot(SimRobotNodeConfig(description=str(file)), bus)
    say, states, names = SAFE.publisher(other), list[JointState](), load_description(str(file)).names
    JOINT_STATES.subscribe(other, lambda m, at: states.append(m))
    other.timer(0.02, lambda: say(command([2.0, 0.0, 0.0, 0.0, 0.0, 0.0], names=names)))
    bus.spin(lambda: world.now() >= 1.0)
    assert len(states) == pytest.approx(200, abs=2)
    assert states[-1].position_rad[0] == pytest.approx(0.2, abs=0.05)
    bus.spin(lambda: world.now() >= 4.0)
    assert states[-1].position_rad[0] == pytest.approx(0.5, abs=0.02)


def test_command_safe_reaches_a_controller(tmp_path: Path) -> None:
    """From command/safe through the node, the guard process, ur_rtde and RTDE over TCP."""
    pytest.importorskip("rtde_control", reason="ur_rtde is not installed (extra [ur])")
    host = own_address()
    (tmp_path / "arm.yaml").write_text(f"driver: ur\nhost: {host}\nwatchdog_s: 0.3\n")
    world = InProcessWorld(clock=time.monotonic)
    bus, other = world.bus("robot_driver"), world.bus("filter")
    with Peer("arms.fake_ur", host) as peer:
        config = RobotDriverNodeConfig(settings=str(tmp_path / "arm.yaml"), robot=described(tmp_path))
        node: Any = robot_driver(config, bus)
        names, say = node._driver.names, SAFE.publisher(other)
        other.timer(0.02, lambda: say(command(np.full(6, 0.2), names=names)))
        try:
            end_s = time.monotonic() + 0.6
            bus.spin(lambda: time.monotonic() > end_s)
        finally:
            node.finish()
        assert peer.all("servo")[-1]["q"] == pytest.approx([0.2] * 6)
        assert peer.wait("servo_stop")
