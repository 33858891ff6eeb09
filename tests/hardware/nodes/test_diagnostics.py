"""Diagnostics collect the statuses of filter and robot, and tell a fault from a requested end."""

from __future__ import annotations

from hardware.bus.in_process import InProcessWorld
from hardware.bus.protocol import Profile
from hardware.messages import Diagnostics
from hardware.nodes.diagnostics import DiagnosticsNode
from hardware.nodes.safety_filter import SafetyFilterNode
from hardware.nodes.sim_robot import HOLDS, SimArmNode
from hardware.safety.reasons import Reason
from hardware.topics import DIAGNOSTICS, SAFETY_STATE
from tests.hardware.arm_descriptions import arm
from tests.hardware.nodes.fakes import LagArm
from tests.hardware.nodes.filter_cell import Cell


def test_diagnostics_collect_statuses_and_report_silence() -> None:
    cell = Cell()
    DiagnosticsNode(cell.world.bus("diagnostics"))
    heard: list[Diagnostics] = []
    DIAGNOSTICS.subscribe(cell.world.bus("reader"), lambda m, at: heard.append(m))
    cell.until(2.2)
    row = next(row for row in heard[-1].status if row.name == "filter")
    assert (row.name, row.level, row.message) == ("filter", 0, "following policy")
    cell.world.kill("filter")
    cell.policy_bus.spin(lambda: cell.world.now() >= 6.0)
    row = next(row for row in heard[-1].status if row.name == "filter")
    assert row.level == 3
    assert row.message.startswith("silent for")


def test_diagnostics_name_the_robot_and_the_hardware() -> None:
    """In a namespace the topic is the same, /diagnostics, and the names on it begin with the namespace."""
    world, heard = InProcessWorld(), list[Diagnostics]()
    SimArmNode(world.bus("robot", "left"), LagArm(), 50.0, arm())
    SafetyFilterNode(world.bus("filter", "left"), arm())
    DiagnosticsNode(world.bus("diagnostics", "left"), lambda sentence: None)
    reader = world.bus("reader")
    reader.subscribe("/diagnostics", Diagnostics, Profile.STATE, lambda m, at: heard.append(m))
    reader.spin(lambda: world.now() >= 2.5)
    assert {row.name: row.hardware_id for row in heard[-1].status} == {
        "left/filter": "small",
        "left/robot": "left",
    }


def test_requested_end_is_not_reported_as_a_fault() -> None:
    """The filter ends as requested, and the arm holds without commands; a killed filter is still reported."""
    cell, said, heard = Cell(), list[str](), list[Diagnostics]()
    DiagnosticsNode(cell.world.bus("diagnostics"), said.append)
    DIAGNOSTICS.subscribe(cell.world.bus("reader"), lambda m, at: heard.append(m))
    cell.until(3.2)
    assert said == []
    cell.node.stop("Ctrl-C")
    cell.until(5.0)
    cell.world.kill("filter")
    cell.robot.stop("Ctrl-C")
    cell.policy_bus.spin(lambda: cell.world.now() >= 5.6)
    cell.world.kill("robot")
    cell.policy_bus.spin(lambda: cell.world.now() >= 12.0)
    assert said == []
    assert {row.name: (row.level, row.message) for row in heard[-1].status} == {
        "filter": (0, "ended: Ctrl-C"),
        "robot": (0, "ended: Ctrl-C"),
    }


def test_lasting_effect_of_an_end_is_reported() -> None:
    """The policy's end was requested; that the arm still holds without commands is reported after a while."""
    cell, said = Cell(), list[str]()
    DiagnosticsNode(cell.world.bus("diagnostics"), said.append)
    cell.until(2.2)
    cell.node.stop("Ctrl-C")
    cell.until(2.6)
    cell.world.kill("filter")
    cell.policy_bus.spin(lambda: cell.world.now() >= 8.0)
    assert said == [f"robot: {HOLDS}"]


def test_status_changes_are_published_at_once() -> None:
    cell, heard = Cell(), list[tuple[float, str]]()
    SAFETY_STATE.subscribe(cell.world.bus("reader"), lambda m, at: heard.append((at, m.status[0].message)))
    cell.until(1.005)
    cell.world.kill("policy")
    cell.until(1.2)
    assert [message for at, message in heard if 1.005 < at < 1.06] == [Reason.STALE_COMMAND.sentence]
