"""Lifecycle nodes: transitions and Trigger services do the same. With a real ROS: test_ros_lifecycle."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hardware.arms.bounds import JointLimits
from hardware.arms.simulated import SimulatedArmDriver
from hardware.bus.in_process import InProcessWorld
from hardware.bus.lifecycle import FINALIZED, Lifecycle, LifecycleBus, NoLifecycle, manage
from hardware.bus.protocol import Answer
from hardware.messages import Flag
from hardware.nodes.robot_driver import STOPPED, ArmDriverNode
from hardware.nodes.safety_filter import SafetyFilterNode
from hardware.nodes.sim_robot import SimArmNode
from hardware.safety.phase import Phase
from hardware.topics import ESTOP, SAFE
from tests.hardware.arm_descriptions import arm, command
from tests.hardware.nodes.fakes import LagArm


class Managed:
    """A lifecycle that records what the node offers and reports."""

    def __init__(self, bus: Any) -> None:
        self.reports: list[bool] = []
        self.finalized = False
        bus.manage = self.manage
        assert isinstance(bus, LifecycleBus)

    def manage(self, activate: Callable[[], Answer], deactivate: Callable[[], Answer]) -> Lifecycle:
        self.activate, self.deactivate = activate, deactivate
        return self

    def report(self, active: bool) -> None:
        if self.reports[-1:] != [active]:
            self.reports.append(active)


class FilteredArm:
    """A simulated arm and its filter, which has a lifecycle."""

    def __init__(self, arm_at_once: bool) -> None:
        self.world = InProcessWorld()
        self.bus, self.button = self.world.bus("filter"), self.world.bus("button")
        self.lifecycle = Managed(self.bus)
        SimArmNode(self.world.bus("robot"), LagArm(), 50.0, arm())
        self.node = SafetyFilterNode(self.bus, arm(), arm=arm_at_once)

    def wait(self, seconds: float) -> None:
        end_s = self.world.now() + seconds
        self.bus.spin(lambda: self.world.now() >= end_s)


def test_activating_arms_and_deactivating_stops() -> None:
    cell = FilteredArm(arm_at_once=False)
    assert cell.lifecycle.activate()[0] is False  # without a state of the robot
    cell.wait(0.5)
    assert cell.lifecycle.activate()[0] is True
    assert cell.node.filter.phase is Phase.ARMED
    cell.wait(0.1)
    assert cell.lifecycle.deactivate()[0] is True
    cell.wait(1.0)
    assert cell.node.filter.phase is Phase.DISARMED
    assert cell.lifecycle.reports == [True, False]


def test_lifecycle_follows_the_phase_of_the_filter() -> None:
    """Whatever armed or stopped the filter: a service, the start, or the emergency stop."""
    cell = FilteredArm(arm_at_once=True)
    cell.wait(0.5)
    assert cell.lifecycle.reports[-1] is True
    assert cell.button.call("filter/stop", 1.0)[0]
    cell.wait(1.0)
    assert cell.lifecycle.reports[-1] is False
    assert cell.button.call("filter/arm", 1.0)[0]
    cell.wait(0.1)
    assert cell.lifecycle.reports[-1] is True
    ESTOP.publisher(cell.button)(Flag(True))
    cell.wait(0.1)
    assert cell.lifecycle.reports[-1] is False


@pytest.mark.parametrize("arm_at_once", [True, False])
def test_filter_cannot_be_armed_after_shutdown(arm_at_once: bool) -> None:
    cell = FilteredArm(arm_at_once)
    cell.lifecycle.finalized = True
    cell.wait(0.5)
    assert cell.button.call("filter/arm", 1.0) == (False, FINALIZED)
    assert cell.node.filter.phase is Phase.DISARMED


def test_driver_lifecycle() -> None:
    world, lag = InProcessWorld(), LagArm()
    bus, other = world.bus("robot_driver"), world.bus("other")
    lifecycle = Managed(bus)
    driver = SimulatedArmDriver(
        lag, JointLimits((-1.0,) * 3, (1.0,) * 3, (2.0,) * 3), rate_hz=50.0, clock=world.now
    )
    node = ArmDriverNode(bus, driver, 100.0, arm(), lambda sentence: None)
    bus.timer(0.01, lambda: lag.advance(0.01))
    say = SAFE.publisher(other)
    other.timer(0.02, lambda: say(command([0.1, 0.2, 0.3])))

    def wait(seconds: float) -> None:
        end_s = world.now() + seconds
        bus.spin(lambda: world.now() >= end_s)

    wait(0.6)
    assert lag.place == pytest.approx([0.1, 0.2, 0.3], abs=0.01)
    assert other.call("robot_driver/stop", 1.0) == (True, STOPPED)
    lag.reset()
    wait(0.5)
    assert lag.place == pytest.approx([0.0, 0.0, 0.0], abs=0.01)  # commands come, and are not obeyed
    assert lifecycle.activate() == (True, "connected")
    wait(0.5)
    assert lag.place == pytest.approx([0.1, 0.2, 0.3], abs=0.01)
    assert lifecycle.deactivate() == (True, STOPPED)
    assert lifecycle.reports == [True, False, True, False]
    lifecycle.finalized = True
    assert other.call("robot_driver/connect", 1.0) == (False, FINALIZED)
    node.finish()


def test_node_works_on_a_bus_without_lifecycles() -> None:
    bus = InProcessWorld().bus("filter")
    made = manage(bus, lambda: (True, ""), lambda: (True, ""))
    assert isinstance(made, NoLifecycle)
    assert isinstance(made, Lifecycle)
    made.report(True)
    assert not made.finalized
