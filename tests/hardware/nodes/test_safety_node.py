"""The safety filter's node between a simulated arm and senders of commands, in virtual time."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hardware.bus.in_process import InProcessBus, InProcessWorld
from hardware.bus.protocol import Bus
from hardware.driver import WATCHDOG_S
from hardware.messages import Flag
from hardware.nodes.safety_filter import SafetyFilterNode, watchdog_hz
from hardware.nodes.shared.protocol import Node
from hardware.nodes.sim_robot import SimArmNode
from hardware.safety.arm_filter import ArmFilter
from hardware.safety.phase import Phase
from hardware.safety.reasons import Reason
from hardware.topics import ESTOP, INTERVENTION, JOINT_STATES, SAFE, TELEOP
from tests.hardware.arm_descriptions import arm, command, state
from tests.hardware.nodes.fakes import LagArm
from tests.hardware.nodes.filter_cell import Cell

JOINT = {"low_rad": -1.0, "high_rad": 1.0, "velocity_rad_s": 2.0, "acceleration_rad_s2": 20.0}


def test_nodes_implement_the_protocol() -> None:
    cell = Cell()
    assert isinstance(cell.node, Node)
    assert isinstance(cell.robot, Node)
    assert isinstance(cell.filter_bus, Bus)


def test_arm_follows_the_policy_through_the_filter() -> None:
    cell = Cell()
    cell.until(2.0)
    assert cell.arm.place == pytest.approx(np.full(3, 0.2), abs=0.01)
    assert cell.node.filter.reason is None


def test_safe_commands_have_stamp_zero() -> None:
    """joint_trajectory_controller compares any other stamp with its own clock, which may be a simulator's."""
    cell, stamps = Cell(), list[float]()
    SAFE.subscribe(cell.world.bus("controller"), lambda m, at: stamps.append(m.stamp_s))
    cell.until(1.0)
    assert len(stamps) > 40
    assert set(stamps) == {0.0}


@pytest.mark.parametrize(
    ("rates", "looks_hz"),
    [
        ({}, 250.0),
        ({"state_hz": 100}, 500.0),
        ({"state_hz": 2000}, 500.0),
        ({"command_hz": 1000, "state_hz": 1000}, 2000.0),
    ],
)
def test_tick_rate_follows_the_message_rates(rates: dict[str, float], looks_hz: float) -> None:
    """A state or command received just now is never stale, however rare the ticks."""
    robot = arm(**rates)
    assert watchdog_hz(robot) == looks_hz
    filter_ = ArmFilter(robot, look_s=1.5 / looks_hz)
    filter_.on_state(state([0.0] * 3), 0.0)
    assert filter_.arm(0.0)[0]
    assert filter_.on_command(command([0.0] * 3), "policy", 0.0)
    filter_.tick(0.5 / max(robot.state_hz, robot.command_hz))
    assert filter_.reason is None


def test_nothing_is_sent_before_arming() -> None:
    """And the service arms."""
    cell = Cell(armed=False)
    cell.until(1.0)
    assert not cell.safe
    assert cell.policy_bus.call("filter/arm", 1.0)[0]
    cell.until(1.5)
    assert cell.safe


def test_states_of_other_joints_are_reported_every_5_s() -> None:
    """They arrive 50 times a second and the filter is never armed."""
    world, said = InProcessWorld(), list[str]()
    bus = world.bus("filter")
    SimArmNode(world.bus("robot"), LagArm(), 50.0, arm())
    joints = [{**JOINT, "name": name} for name in ("a", "b", "see")]
    node = SafetyFilterNode(bus, arm(joints=joints), arm=True, say=said.append)
    bus.spin(lambda: world.now() >= 4.0)
    assert node.at_rest
    assert said == [
        "filter: joint_states lacks see of the robot's description; it has a, b, c. Such a state is dropped."
    ]


@pytest.mark.parametrize(
    ("offset_rad", "why"),
    [
        (math.nan, "the command contains NaN or an infinite value"),
        (
            0.5,
            f"{Reason.JUMP_AT_START.sentence}. Joint a: command 0.50 rad, arm 0.00 rad, limit "
            "start_jump_rad=0.3. Move the arm to where the demonstrations start, or raise start_jump_rad",
        ),
    ],
)
def test_dropped_commands_are_reported(offset_rad: float, why: str) -> None:
    """Fifty a second, one line in 5 s; the filter's state only shows that no command was accepted. It is said
    again while it lasts.
    """
    cell, said = Cell(), list[str]()
    cell.world.kill("filter")
    bus, other = cell.world.bus("watched"), cell.world.bus("other")
    watched, send = SafetyFilterNode(bus, arm(), arm=True, say=said.append), TELEOP.publisher(other)
    INTERVENTION.publisher(other)(Flag(True))
    other.timer(0.02, lambda: send(command(np.full(3, offset_rad), round(50 * cell.world.now()))))
    cell.until(4.0)
    assert watched.filter.phase is Phase.ARMED
    assert watched.filter.reason.sentence == "no command has been accepted yet"
    assert said == [line := f"watched: what teleop sends is dropped: {why}."]
    cell.until(9.0)
    assert said == [line, line]


KILLED_S = [1.0, 1.0001, 1.005, 1.0123, 1.0199]


@pytest.mark.parametrize("killed_s", KILLED_S)
def test_kill_9_of_the_policy_holds_within_two_periods(killed_s: float) -> None:
    """2 periods of 20 ms, whenever the policy dies: the filter ticks every 4 ms and counts ages at its
    next tick.
    """
    cell = Cell()
    cell.until(killed_s)
    cell.world.kill("policy")
    cell.until(1.3)
    assert cell.silence_after(killed_s) <= 0.04 + 1e-6
    assert cell.node.filter.reason is Reason.STALE_COMMAND
    cell.until(3.0)
    assert cell.node.at_rest
    assert len(cell.safe) < 120


@pytest.mark.parametrize("killed_s", KILLED_S)
def test_kill_9_of_the_state_holds_within_three_periods(killed_s: float) -> None:
    cell = Cell()
    cell.until(killed_s)
    cell.world.kill("robot")
    cell.until(1.3)
    assert cell.silence_after(killed_s) <= 0.06 + 1e-6
    assert cell.node.filter.reason is Reason.STALE_STATE


def test_kill_9_of_the_filter_triggers_the_watchdog() -> None:
    """The simulated driver holds by itself 80 ms after the last command."""
    cell = Cell()
    cell.until(1.005)
    cell.world.kill("filter")
    cell.until(1.005 + WATCHDOG_S + 0.03)
    assert cell.robot.holds == 1
    held = cell.arm.goal
    cell.until(2.0)
    assert np.array_equal(cell.arm.goal, held)
    assert cell.arm.place == pytest.approx(held, abs=1e-4)


def test_emergency_stop_is_latched() -> None:
    cell = Cell()
    cell.until(1.0)
    press = ESTOP.publisher(cell.world.bus("button"))
    press(Flag(True))
    cell.until(1.5)
    assert cell.node.at_rest
    assert not cell.policy_bus.call("filter/arm", 1.0)[0]
    press(Flag(False))
    cell.until(1.6)
    sent = len(cell.safe)
    cell.until(2.0)
    assert len(cell.safe) == sent
    assert cell.policy_bus.call("filter/arm", 1.0)[0]


def test_unheard_publisher_of_estop_stops_at_its_end() -> None:
    """Its message may have been lost, as those of Fast DDS that follow at once on its discovery."""
    cell = Cell()
    cell.until(1.0)
    button = cell.world.bus("button")
    ESTOP.publisher(button)
    cell.until(1.1)
    assert cell.node.filter.phase is Phase.ARMED
    button.close()
    cell.until(1.6)
    assert cell.node.at_rest
    assert cell.node.filter.reason is Reason.EMERGENCY_UNHEARD
    assert cell.policy_bus.call("filter/arm", 1.0)[0]


def test_heard_publisher_of_estop_may_end() -> None:
    cell = Cell()
    cell.until(1.0)
    button = cell.world.bus("button")
    ESTOP.publisher(button)(Flag(False))
    cell.until(1.1)
    button.close()
    cell.until(1.6)
    assert cell.node.filter.phase is Phase.ARMED


@pytest.mark.parametrize("stopped_by", ["estop", "service"])
def test_emergency_stop_cancels_arming_at_the_start(stopped_by: str) -> None:
    """`arm=true` arms once states arrive, but not when an emergency stop from before that is released."""
    cell = Cell(armed=True)
    if stopped_by == "estop":
        press = ESTOP.publisher(cell.world.bus("button"))
        press(Flag(True))
        cell.until(0.5)
        press(Flag(False))
    else:
        cell.policy_bus.call("filter/stop", 1.0)
    cell.until(1.0)
    assert not cell.safe
    assert cell.policy_bus.call("filter/arm", 1.0)[0]


def test_a_state_before_the_latched_stop_does_not_arm(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a network, states may come before what other programs said earlier; discovery takes 0.5 s here."""
    monkeypatch.setattr(InProcessBus, "discovery_s", 0.5)
    cell = Cell(armed=True)
    cell.until(0.48)
    assert cell.node.at_rest
    ESTOP.publisher(cell.world.bus("button"))(Flag(True))
    cell.until(1.0)
    assert cell.node.at_rest
    other = Cell(armed=True)
    other.until(0.3)
    ESTOP.publisher(other.world.bus("button"))  # which is silent: nothing was pressed, and 0.5 s begin anew
    other.until(0.78)
    assert other.node.at_rest
    other.until(0.9)
    assert other.node.filter.phase is Phase.ARMED


def test_gripper_may_publish_joint_states_if_described() -> None:
    """Two publishers of joint_states may be an arm and its gripper; a third one is a fault."""
    for allowed, stops in ((1, True), (2, False)):
        world = InProcessWorld()
        SimArmNode(world.bus("robot"), LagArm(), 50.0, arm())
        node = SafetyFilterNode(world.bus("filter"), arm(state_publishers=allowed), say=lambda line: None)
        JOINT_STATES.publisher(world.bus("gripper"))
        assert bool(node.filter.publisher_conflict) is stops
        JOINT_STATES.publisher(world.bus("third"))
        assert "joint_states has 3 publishers" in node.filter.publisher_conflict
