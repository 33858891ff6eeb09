"""Hostile but valid messages end no node; `benchmarks/attack.py --part messages` draws them at random."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from hardware.bus.in_process import InProcessWorld
from hardware.bus.wire_values import join_time, split_time
from hardware.loop.scale import scalable
from hardware.messages import Diagnostics, FlightCommand, Floats, JointState, JointTrajectory, Status
from hardware.nodes.diagnostics import MOST, DiagnosticsNode
from hardware.nodes.quad_policy import QuadPolicyNode
from hardware.nodes.recorder import RecorderConfig, RecorderNode
from hardware.nodes.sim_robot import SimArmNode
from hardware.topics import DIAGNOSTICS, FLIGHT_SAFE, GOAL, JOINT_STATES, LOOP_STATUS, SAFE
from policies.deploy.bundle import Bundle
from robo_rl.apps.nodes.quads.hover_cell import flight_env, flight_observer
from robo_rl.core.errors import BusError
from tests.hardware.arm_descriptions import NAMES, arm, command
from tests.hardware.nodes.fakes import LagArm
from tests.hardware.scripted_bus import ScriptedBus


@pytest.mark.parametrize(
    "message",
    [
        command([0.1, 0.1, 0.1], names=("x", "y", "z")),
        command([np.nan, 0.0, 0.0]),
        JointTrajectory(0.0, NAMES, np.zeros((0, 3)), np.zeros(0)),
    ],
)
def test_simulated_arm_refuses_invalid_commands(message: JointTrajectory) -> None:
    """Its status has the reason, and the next valid command is followed: one period of 20 ms at 2 rad/s."""
    bus, lag = ScriptedBus(), LagArm()
    SimArmNode(bus, lag, 50.0, arm())
    bus.heard[SAFE.name](message, 0.0)
    assert not lag.commands
    bus.run(0.6)
    assert bus.sent[LOOP_STATUS.name][-1].status[0].level == 2
    bus.heard[SAFE.name](command([0.1, 0.0, 0.0]), bus.now())
    assert lag.commands[-1].tolist() == [0.04, 0.0, 0.0]


def test_a_flight_policy_ignores_sent_commands_of_another_size(hover: Bundle) -> None:
    """Seven numbers on flight/safe would change the size of its observation; so would a goal of 100,000
    numbers.
    """
    bus, said = ScriptedBus(), list[str]()
    node = QuadPolicyNode(bus, hover, flight_observer(flight_env(hover)), say=said.append)
    before = node._observer._actions.copy()
    for values in (np.zeros(7), np.zeros(0), np.full(4, np.nan)):
        bus.heard[FLIGHT_SAFE.name](FlightCommand(0.0, values), 0.0)
    assert np.array_equal(node._observer._actions, before)
    for _ in range(3):
        bus.heard[GOAL.name](Floats(np.zeros(100_000)), 0.0)
    assert len(said) == 1
    assert "100000 numbers" in said[0]


def test_number_of_status_names_is_limited() -> None:
    bus, said = ScriptedBus(), list[str]()
    DiagnosticsNode(bus, said.append)
    for i in range(2 * MOST):
        bus.heard[LOOP_STATUS.name](Diagnostics(0.0, (Status(f"n{i}", 0, "", {}),)), 0.0)
    bus.run(1.1)
    assert len(bus.sent[DIAGNOSTICS.name][-1].status) == MOST
    assert len(said) == 1


def test_recorder_drops_messages_that_cannot_be_encoded(tmp_path: Path) -> None:
    """Here a stamp that no ROS message can hold."""
    bus, said = ScriptedBus(), list[str]()
    node = RecorderNode(bus, RecorderConfig(str(tmp_path), start=True), [JOINT_STATES], said.append)
    bus.heard[JOINT_STATES.name](JointState(np.inf, NAMES, np.zeros(3)), 0.0)
    bus.heard[JOINT_STATES.name](JointState(0.0, NAMES, np.zeros(3)), 0.0)
    assert node.save()[0]
    assert "a message on joint_states is dropped" in " ".join(said)


def test_an_empty_picture_cannot_be_scaled() -> None:
    assert not scalable((0, 0), (8, 8))
    assert not scalable((0, 100), (8, 8))


@pytest.mark.parametrize(
    ("sec", "nanosec"), [(0, 10**9), (2**31 - 1, 0), (2**31 - 2, 999_999_999), (0, 2**32 - 1)]
)
def test_unencodable_times_are_refused(sec: int, nanosec: int) -> None:
    """A node that republishes the stamp of what it received would otherwise end."""
    with pytest.raises(BusError, match="out of range"):
        join_time(SimpleNamespace(sec=sec, nanosec=nanosec))
    split_time(join_time(SimpleNamespace(sec=2**31 - 2, nanosec=999_999_000)))


def test_in_process_bus_refuses_inconsistent_shapes() -> None:
    """Two positions for three joints: the sender gets an error, and no node receives the message."""
    world = InProcessWorld()
    say = JOINT_STATES.publisher(world.bus("robot"))
    with pytest.raises(BusError, match="2 values for 3 joints"):
        say(JointState(0.0, NAMES, np.zeros(2)))


def test_simulated_robots_hold_while_two_publish() -> None:
    """The arm holds, and follows again when one publisher is left; its status names both."""
    bus, lag = ScriptedBus(), LagArm()
    SimArmNode(bus, lag, 50.0, arm())
    bus.heard[SAFE.name](command([0.01, 0.0, 0.0]), 0.0)
    bus.watched[SAFE.name](("/filter", "/stranger"))
    held = len(lag.commands)
    for _ in range(10):
        bus.heard[SAFE.name](command([0.02, 0.0, 0.0]), bus.now())
    assert len(lag.commands) == held
    assert "/filter and /stranger" in bus.sent[LOOP_STATUS.name][-1].status[0].message
    bus.watched[SAFE.name](("/filter",))
    bus.heard[SAFE.name](command([0.02, 0.0, 0.0]), bus.now())
    assert lag.commands[-1].tolist() == [0.02, 0.0, 0.0]
