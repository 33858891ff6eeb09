"""Teleoperation in virtual time: commands only while the switch is held."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hardware.bus.in_process import InProcessWorld
from hardware.nodes.recorder import RecorderConfig, RecorderNode
from hardware.nodes.safety_filter import SafetyFilterNode
from hardware.nodes.shared.protocol import Node
from hardware.nodes.sim_robot import SimArmNode
from hardware.nodes.teleop import TeleopNode
from hardware.safety.reasons import Reason
from hardware.teleop.device import NOTHING, Feedback, OperatorInput
from hardware.teleop.drive import MATCH_RAD
from hardware.teleop.jog import LEAD_S, Jog
from hardware.topics import INTERVENTION, JOINT_STATES, TELEOP, TELEOP_FAULT
from robo_rl.core.errors import DriverError
from tests.hardware.arm_descriptions import arm
from tests.hardware.nodes.fakes import LagArm


class Hand:
    """A device under control of the test."""

    def __init__(self) -> None:
        self.operator, self.broken, self.closed = NOTHING, "", 0
        self.seen: list[Feedback] = []
        self.error: Exception | None = None

    def connect(self) -> None:
        """Nothing to open."""

    def send_feedback(self, feedback: Feedback) -> None:
        self.seen.append(feedback)

    def help(self) -> str:
        return "a hand"

    def get_action(self, now_s: float) -> OperatorInput:
        if self.error is not None:
            raise self.error
        if self.broken:
            raise DriverError(self.broken)
        operator = self.operator
        self.operator = replace(operator, recorder_request="", gripper_toggle=False)  # once per press
        return operator

    def close(self) -> None:
        self.closed += 1


class Cell:
    """Simulated arm, filter and teleoperation; `heard` holds all messages, in order."""

    def __init__(self) -> None:
        self.world, self.arm, self.hand = InProcessWorld(), LagArm(), Hand()
        self.heard: list[tuple[float, str, Any]] = []
        self.said: list[str] = []
        self.faults: list[str] = []  # on the bus, where the recording page hears them
        probe = self.world.bus("probe")
        TELEOP_FAULT.subscribe(probe, lambda m, at: self.faults.append(m.text))
        INTERVENTION.subscribe(probe, lambda m, at: self.heard.append((at, "intervention", m.on)))
        TELEOP.subscribe(probe, lambda m, at: self.heard.append((at, "command", m)))
        self.bus = self.world.bus("teleop")
        self.robot = SimArmNode(self.world.bus("robot"), self.arm, 50.0, arm())
        self.filter = SafetyFilterNode(self.world.bus("filter"), arm(), arm=True)
        self.node = TeleopNode(self.bus, self.hand, arm(), self.said.append)

    def run(self, seconds: float) -> None:
        end_s = self.world.now() + seconds
        self.bus.spin(lambda: self.world.now() >= end_s - 1e-9)


def test_buttons_start_and_end_recordings(tmp_path: Path) -> None:
    """Two episodes by the device alone: start, save, start, discard. An impossible request is reported."""
    cell, statuses = Cell(), list[str]()
    recorder = RecorderNode(
        cell.world.bus("recorder"), RecorderConfig(str(tmp_path)), [JOINT_STATES], statuses.append
    )
    for ask in ("start", "success", "success", "start", "discard", "begin"):
        cell.hand.operator = OperatorInput(False, recorder_request=ask)
        cell.run(0.3)
    words = [" ".join(status.split()[:1]) for status in statuses]
    assert words == ["idle:", "recording", "saved", "nothing", "recording", "discarded", "'begin'"]
    assert statuses[2].endswith(", a success")
    assert "known: start, stop, success, failure, discard" in statuses[-1]
    assert not any(what == "intervention" and on for _, what, on in cell.heard)
    assert len(list(tmp_path.glob("episode_*"))) == 1
    recorder.finish()


def test_driving_without_a_recording_is_reported_once(tmp_path: Path) -> None:
    """So that an hour of demonstrations is not lost unnoticed, although the way to the start is not
    recorded.
    """
    cell, statuses = Cell(), list[str]()
    topics = [JOINT_STATES, TELEOP]
    recorder = RecorderNode(
        cell.world.bus("recorder"), RecorderConfig(str(tmp_path)), topics, statuses.append
    )
    cell.run(0.5)
    assert [status.split(":")[0] for status in statuses] == ["idle"]
    for _ in range(2):
        cell.hand.operator = OperatorInput(True, rates=np.ones(3))
        cell.run(0.2)
        cell.hand.operator = NOTHING
        cell.run(0.2)
    assert [status.split(":")[0] for status in statuses[1:]] == ["A human drives, and nothing is recorded"]
    for ask in ("start", "success"):
        cell.hand.operator = OperatorInput(True, rates=np.ones(3), recorder_request=ask)
        cell.run(0.2)
    assert [status.split()[0] for status in statuses[2:]] == ["recording", "saved"]
    recorder.finish()


def test_arm_moves_while_the_switch_is_held() -> None:
    """0.3 of 2 rad/s for 0.5 s is 0.3 rad; after the release it stays, and the intervention ends."""
    cell = Cell()
    assert isinstance(cell.node, Node)
    cell.run(0.3)
    cell.hand.operator = OperatorInput(True, rates=np.array([1.0, 0.0]))  # two axes for three joints
    cell.run(0.5)
    cell.hand.operator = OperatorInput(False, rates=np.array([1.0, 0.0]))  # the stick is still out
    cell.run(0.3)
    place = cell.arm.place.copy()
    assert place[0] == pytest.approx(0.3, abs=0.05)
    assert place[1:] == pytest.approx([0.0, 0.0], abs=1e-6)
    cell.run(0.5)
    assert cell.arm.place == pytest.approx(place, abs=0.005)
    assert [on for _, what, on in cell.heard if what == "intervention"] == [True, False]
    cell.hand.operator = OperatorInput(True, rates=np.array([0.0, 1.0]))
    cell.run(0.1)
    commands = [m for _, what, m in cell.heard if what == "command"]
    stamps_s = [m.stamp_s for m in commands]
    assert all(later > before for before, later in itertools.pairwise(stamps_s))
    assert {m.frame for m in commands} == {"base_link"}


def test_restarted_teleop_is_followed() -> None:
    """The filter stays armed meanwhile, and has received many interventions of the previous node."""
    cell = Cell()
    for held in 5 * (True, False):
        cell.hand.operator = OperatorInput(held, rates=np.array([0.1, 0.0, 0.0]))
        cell.run(0.1)
    cell.bus.close()
    again, hand = cell.world.bus("teleop"), Hand()
    TeleopNode(again, hand, arm(), cell.said.append)
    hand.operator = OperatorInput(True, rates=np.array([1.0, 0.0, 0.0]))
    place, end_s = cell.arm.place.copy(), cell.world.now() + 0.5
    again.spin(lambda: cell.world.now() >= end_s)
    assert cell.arm.place[0] > place[0] + 0.2
    assert Reason.OUT_OF_ORDER not in cell.filter.filter.counts


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.floats(-3.0, 3.0)), min_size=1, max_size=25))
def test_no_command_without_the_switch(steps: list[tuple[bool, float]]) -> None:
    """For any stick motion, every command lies between the begin and the end of an intervention."""
    cell = Cell()
    cell.run(0.1)
    held: list[tuple[float, bool]] = []
    for on, rate in steps:
        cell.hand.operator = OperatorInput(on, rates=np.full(3, rate))
        held.append((cell.world.now(), on))
        cell.run(0.04)
    intervening = False
    for at, what, message in cell.heard:
        if what == "intervention":
            intervening = message
            continue
        assert intervening
        assert [on for since, on in held if since <= at][-1]
    assert (np.abs(cell.arm.place) <= 1.0 + 1e-9).all()


def test_unplugged_gamepad_ends_the_intervention() -> None:
    cell = Cell()
    cell.hand.operator = OperatorInput(True, rates=np.ones(3))
    cell.run(0.4)
    cell.hand.broken = "The gamepad js0 is gone."
    cell.run(0.4)
    assert cell.heard[-1][1:] == ("intervention", False)
    assert cell.said == cell.faults == ["The gamepad js0 is gone."]
    cell.hand.broken = ""  # plugged in again, still held: nothing moves by itself
    count = len(cell.heard)
    cell.run(0.4)
    assert len(cell.heard) == count
    assert cell.node.stop("Ctrl-C") == "Ctrl-C: nothing was held"
    for _ in range(2):
        cell.node.finish()
    assert cell.hand.closed == 1


def test_a_program_that_starts_or_ends_leaves_the_arm_to_the_human_of_another() -> None:
    """A second one sends no flag before its own intervention, and none at its end without one."""
    cell = Cell()
    cell.hand.operator = OperatorInput(True, rates=np.zeros(3))
    cell.run(0.3)
    assert cell.filter.filter.source == "teleop"
    other = TeleopNode(cell.world.bus("other"), Hand(), arm(), print)
    cell.run(0.3)
    other.stop("the end")
    other.finish()
    cell.run(0.3)
    assert cell.filter.filter.source == "teleop"
    assert [on for _, kind, on in cell.heard if kind == "intervention"] == [True]


def test_no_command_without_recent_states() -> None:
    """With no joint_states, or old ones, the switch counts as released."""
    cell = Cell()
    cell.run(0.3)
    cell.robot._tell = lambda message: None  # the robot falls silent
    cell.hand.operator = OperatorInput(True, rates=np.ones(3))
    cell.run(0.2)
    heard = [(at, what) for at, what, _ in cell.heard if what == "command"]
    assert all(at < 0.42 for at, _ in heard)


def test_leader_must_be_near_its_follower() -> None:
    """At 0.5 rad away it does not take over, and the report names the joint; near enough it is followed."""
    cell = Cell()
    cell.run(0.2)
    cell.hand.operator = OperatorInput(True, position_rad=np.array([0.0, 0.5, 0.0]))
    cell.run(0.2)
    assert [on for _, what, on in cell.heard if what == "intervention"] == []
    assert cell.said == [
        f"Bring b of the leader to its follower first: it is 0.50 rad away, {MATCH_RAD} rad are near enough."
    ]
    for step in range(26):
        cell.hand.operator = OperatorInput(True, position_rad=np.array([0.0, 0.02 * step, 0.0]))
        cell.run(0.04)
    cell.run(0.2)
    assert cell.arm.place[1] == pytest.approx(0.5, abs=0.02)
    cell.hand.operator = OperatorInput(True, position_rad=np.zeros(2))
    cell.run(0.1)
    assert cell.said[-1] == (
        "The device's input is not followed: its list of positions has the shape [2], expected 3 numbers."
    )


def test_leader_that_jumps_is_not_followed() -> None:
    """A joint 6.1 rad further 0.02 s later is a fault of its encoder; near its follower it goes on."""
    cell = Cell()
    cell.run(0.2)
    for place, moves in ((0.1, True), (6.2, False), (6.2, False), (0.1, True)):
        cell.hand.operator = OperatorInput(True, position_rad=np.array([0.0, place, 0.0]))
        before = len(cell.heard)
        cell.run(0.1)
        commands = [m for _, what, m in cell.heard[before:] if what == "command"]
        assert all(m.position_rad[0, 1] == place for m in commands)
        assert bool(commands) == moves
    assert cell.arm.place[1] == pytest.approx(0.1, abs=0.02)
    assert cell.said[0] == (
        "b of the leader jumped by 6.10 rad at once: check its encoder. The arm is held until the leader is "
        "near its follower."
    )


def test_the_target_stays_near_an_arm_that_is_held_back() -> None:
    lead_rad = LEAD_S * np.array([1.0, 0.5])
    jog = Jog(np.full(2, -1.0), np.full(2, 1.0), lead_rad)
    for _ in range(100):
        target_rad = jog.next(np.array([1.0, -0.5]), np.zeros(2), 0.02)
    assert target_rad == pytest.approx([LEAD_S, -0.5 * LEAD_S])
    jog.release()
    assert jog.next(np.zeros(2), np.array([0.4, 0.4]), 0.02) == pytest.approx([0.4, 0.4])
    assert jog.next(np.array([1.0, 0.5]), np.array([0.99, 0.99]), 0.02)[0] <= 1.0
