"""Filter, controller_driver and a model of joint_trajectory_controller in virtual time."""

from __future__ import annotations

import numpy as np
import pytest

from hardware.arms.ros2_control import Ros2ControlDriver
from hardware.bus.in_process import InProcessWorld
from hardware.bus.protocol import Profile
from hardware.messages import Diagnostics, JointState, JointTrajectory
from hardware.nodes.controller_driver import ControllerDriverNode
from hardware.nodes.safety_filter import SafetyFilterNode
from hardware.nodes.shared.protocol import Node
from hardware.safety.phase import Phase
from hardware.topics import DRIVER_STATUS, JOINT_STATES, RAW, SAFE
from tests.hardware.arm_descriptions import NAMES, arm, command
from tests.hardware.arms.jtc_model import Controller, Servo

LIMITS = {"low_rad": [-1.0] * 3, "high_rad": [1.0] * 3, "velocity_rad_s": [2.0] * 3}


class Cell:
    """A policy moves the first joint at 0.5 rad/s, through the model: 48 ms of lag, updates at 500 Hz."""

    def __init__(self) -> None:
        self.world, self.said, self.statuses = InProcessWorld(), list[str](), list[tuple[int, str]]()
        self.controller = Controller(Servo(0.048), from_desired=False, update_hz=500.0)
        self.bus = {name: self.world.bus(name) for name in ("arm", "filter", "driver", "policy")}
        self.tell = JOINT_STATES.publisher(self.bus["arm"])
        self.bus["arm"].subscribe("jtc/joint_trajectory", JointTrajectory, Profile.COMMAND, self._take)
        self.filter = SafetyFilterNode(self.bus["filter"], arm(), say=self.said.append)
        driver = Ros2ControlDriver(
            self.bus["driver"], NAMES, controller="jtc", rate_hz=50.0, say=self.said.append, **LIMITS
        )
        self.node = ControllerDriverNode(self.bus["driver"], driver, self.said.append)
        self.send, self.sent, self.begun_s = RAW.publisher(self.bus["policy"]), 0, 0.0
        DRIVER_STATUS.subscribe(self.bus["policy"], self._on_status)

    def _take(self, message: JointTrajectory, received_s: float) -> None:
        self.controller.take(message)

    def _on_status(self, message: Diagnostics, received_s: float) -> None:
        self.statuses.append((message.status[0].level, message.status[0].message))

    def power_on(self) -> None:
        self.powered = True
        self.bus["arm"].timer(0.002, self._update)

    def _update(self) -> None:
        if not self.powered:
            return
        self.controller.update(self.world.now())
        place = np.array([self.controller.servo.place_rad, 0.0, 0.0])
        self.tell(JointState(1.0 + self.world.now(), NAMES, place, np.zeros(3)))

    def drive(self) -> None:
        self.begun_s = self.world.now()
        self.bus["policy"].timer(0.02, self._speak)

    def _speak(self) -> None:
        self.sent += 1
        goal = 0.5 * (self.world.now() - self.begun_s)
        self.send(command([goal, 0.0, 0.0], self.sent))

    def run(self, seconds: float) -> None:
        end_s = self.world.now() + seconds
        self.bus["policy"].spin(lambda: self.world.now() >= end_s)


def test_ros2_control_arm_moves_smoothly_and_resumes() -> None:
    """0.5 rad/s: a command never changes by more than 2.5 mrad per cycle of 2 ms, where the filter's single
    waypoints would go back by more than 20 mrad. After a stop and a new arming it moves again.
    """
    cell = Cell()
    assert isinstance(cell.node, Node)
    cell.run(1.0)
    assert cell.statuses[-1] == (2, "waits for joint_states: start the joint_state_broadcaster")
    cell.power_on()
    cell.run(0.5)
    assert cell.filter.filter.arm(cell.world.now())[0]
    cell.drive()
    cell.run(0.8)
    place = cell.controller.servo.place_rad
    assert place == pytest.approx(0.5 * 0.8, abs=0.06)
    assert cell.statuses[-1] == (0, "follows commands")
    assert np.abs(np.diff(cell.controller.commands)).max() < 2.5e-3
    cell.filter.filter.stop()
    cell.run(0.6)
    assert cell.filter.filter.phase is Phase.DISARMED
    stood = cell.controller.servo.place_rad
    assert stood == pytest.approx(place, abs=0.06)
    cell.begun_s = cell.world.now() - stood / 0.5
    assert cell.filter.filter.arm(cell.world.now())[0]
    cell.run(0.3)
    assert cell.controller.servo.place_rad > stood + 0.05
    assert cell.node.stop("the test ends") == "the test ends: the arm comes to rest"


def test_lost_controller_manager_is_reported_without_commands() -> None:
    """The filter stops at once when states end, so no command finds the fault; states clear it again."""
    cell = Cell()
    cell.power_on()
    cell.run(0.5)
    assert cell.filter.filter.arm(cell.world.now())[0]
    cell.drive()
    cell.run(0.5)
    assert cell.statuses[-1] == (0, "follows commands")
    cell.powered = False
    cell.run(1.0)
    assert cell.statuses[-1] == (2, "No joint_states come any more, so nothing is sent.")
    cell.powered = True
    cell.run(0.5)
    assert cell.statuses[-1] == (0, "follows commands")


def test_second_publisher_rests_the_arm() -> None:
    """After a last message the controller gets nothing and ~/connect is refused, until one is left."""
    cell = Cell()
    cell.power_on()
    cell.bus["arm"].spin(lambda: cell.world.now() >= 0.5)
    assert cell.bus["policy"].call("filter/arm", 1.0)[0]
    cell.drive()
    cell.bus["arm"].spin(lambda: cell.world.now() >= 1.0)
    rival = cell.world.bus("rival")
    say = SAFE.publisher(rival)
    rival.timer(0.01, lambda: say(command([-1.0, -1.0, -1.0])))
    before_rad = cell.controller.servo.place_rad
    cell.bus["arm"].spin(lambda: cell.world.now() >= 2.0)
    assert cell.controller.servo.place_rad == pytest.approx(before_rad, abs=0.05)  # its lag at 0.5 rad/s
    assert cell.statuses[-1][0] == 2
    assert "command/safe has 2 publishers, /filter and /rival" in cell.statuses[-1][1]
    assert cell.bus["policy"].call("driver/connect", 1.0) == (False, cell.statuses[-1][1])
    rival.close()
    assert cell.bus["policy"].call("driver/connect", 1.0)[0]
