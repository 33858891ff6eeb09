"""Faults of devices and operators: random sequences through node, filter and arm, and their oracle."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hardware.messages import Flag, JointJog, JointTrajectory, Text
from hardware.nodes.shared.dropped import DropReporter
from hardware.nodes.teleop import TeleopNode
from hardware.safety.reasons import Reason
from hardware.teleop.device import NOTHING, HandPose, OperatorInput
from hardware.topics import INTERVENTION, JOINT_JOG, RAW, SAFE, TELEOP_JOINTS
from robo_rl.core.errors import DriverError
from tests.hardware.arm_descriptions import NAMES, arm
from tests.hardware.teleop.test_teleop_node import Cell

TICK_S = 0.02
NASTY = [np.nan, np.inf, -np.inf, 1e308, -1e30, 5e-324]
FAULTS: list[Callable[[], Exception]] = [
    lambda: DriverError("The device is gone."),
    lambda: OSError(19, "No such device"),
    lambda: ValueError("a defect of the device's code"),
]


def random_input(rng: np.random.Generator, at_rad: Any) -> OperatorInput:
    """Any input of any device, a quarter of them broken."""
    bad = rng.random() < 0.25
    kind = str(rng.choice(["rates", "twist", "pose", "position_rad", "none"]))
    size = {"rates": 3, "twist": 6, "pose": 3, "position_rad": 3, "none": 0}[kind]
    values: Any = rng.uniform(-1.5, 1.5, size)
    if kind == "position_rad":
        values = at_rad + rng.choice([0.01, 1.0]) * rng.standard_normal(3)
    if bad and size:
        values = np.where(rng.random(size) < 0.5, rng.choice(NASTY, size), values)
        values = values[: int(rng.integers(size + 1))] if rng.random() < 0.3 else values
    given: dict[str, Any] = {kind: values} if kind not in ("pose", "none") else {}
    if kind == "pose":
        quat = rng.standard_normal(4)
        given = {"pose": HandPose(values, quat / np.linalg.norm(quat) * (0.0 if bad else 1.0))}
    grip = float(rng.choice([0.0, 1.0, *NASTY])) if rng.random() < 0.2 else None
    return OperatorInput(bool(rng.random() < 0.8), gripper=grip, **given)


def usable(operator: OperatorInput) -> bool:
    """True for held input that can be followed, by rules of the test's own."""
    arrays = {"rates": None, "twist": 6, "position_rad": 3}
    for key, size in arrays.items():
        if (values := getattr(operator, key)) is not None and (
            not np.isfinite(values).all() or (size is not None and len(values) != size)
        ):
            return False
    if operator.position_rad is not None and np.abs(operator.position_rad).max() > 100.0:
        return False
    if (pose := operator.pose) is not None:
        whole = len(pose.position_m) == 3 and np.isfinite(pose.position_m).all()
        if not whole or not np.linalg.norm(pose.quat_wxyz) > 0.9 or np.abs(pose.position_m).max() > 100.0:
            return False
    return operator.held and (operator.gripper is None or bool(np.isfinite(operator.gripper)))


def judge(seed: int) -> int:
    """Number of commands of one sequence; raises AssertionError with the broken promise."""
    rng = np.random.default_rng(seed)
    cell = Cell()
    sent: list[Any] = []
    probe = cell.world.bus("other")
    SAFE.subscribe(probe, lambda m, at: sent.append(m.position_rad[0]))
    rival = INTERVENTION.publisher(probe)
    cell.run(0.1)
    was_held = False
    for _ in range(30):
        cell.hand.operator = random_input(rng, cell.arm.place) if rng.random() < 0.6 else cell.hand.operator
        broken = rng.random() < 0.02
        if broken:
            cell.hand.error = rng.choice(np.array(FAULTS))()
        if rng.random() < 0.03:
            rival(Flag(bool(rng.random() < 0.5)))
        count, seen = len(cell.heard), len(sent)
        ok = usable(cell.hand.operator) and cell.hand.error is None
        cell.run(TICK_S)
        new = cell.heard[count:]
        commands = [m for _, what, m in new if what == "command"]
        assert ok or not commands, "commanded without a usable device"
        assert all(np.isfinite(m.position_rad).all() for m in commands), "commanded what is not finite"
        if was_held and not ok:
            assert ("intervention", False) in [(what, m) for _, what, m in new if what == "intervention"], (
                "did not let go in the same tick"
            )
        was_held = cell.node._flag.on
        moved = np.abs(np.diff(np.array([*sent[max(0, seen - 1) :]]), axis=0))
        assert (moved <= 2.0 * 2.0 * TICK_S + 1e-9).all(), "the arm was sent too far at once"
        assert np.isfinite(cell.arm.place).all()
    if cell.hand.error is not None:
        assert cell.said.count(str(cell.hand.error)) <= 1, "reported twice"
        assert cell.node.at_rest, "still driving without a device"
    return len([1 for _, what, _ in cell.heard if what == "command"])


def test_random_faults_of_devices_keep_the_promises() -> None:
    assert sum(judge(seed) for seed in range(60)) > 300


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_ten_thousand_faults_of_devices_keep_the_promises() -> None:
    assert sum(judge(seed) for seed in range(10_000)) > 50_000


def test_another_operator_ends_the_intervention_until_the_switch_is_pressed_again() -> None:
    """The first one lets go within three ticks, and does not take over again while the switch stays held."""
    cell = Cell()
    end = INTERVENTION.publisher(cell.world.bus("other"))
    cell.run(0.1)
    cell.hand.operator = OperatorInput(True, rates=np.ones(3))
    cell.run(0.2)
    assert not cell.node.at_rest
    end(Flag(False))
    cell.run(0.08)
    assert cell.node.at_rest
    assert cell.said == ["Another program ended the intervention. Release the switch, then press it again."]
    cell.run(0.2)
    assert cell.node.at_rest
    cell.hand.operator = NOTHING
    cell.run(0.04)
    cell.hand.operator = OperatorInput(True, rates=np.ones(3))
    cell.run(0.04)
    assert not cell.node.at_rest


def test_second_teleop_node_stops_the_arm() -> None:
    """Two publishers of teleop/command: neither is followed."""
    cell = Cell()
    cell.run(0.1)
    cell.hand.operator = OperatorInput(True, rates=np.ones(3))
    cell.run(0.1)
    TeleopNode(cell.world.bus("second"), type(cell.hand)(), arm(), cell.said.append)
    cell.run(0.3)
    assert cell.filter.filter.reason is Reason.SECOND_PUBLISHER
    place = cell.arm.place.copy()
    cell.run(0.2)
    assert cell.arm.place == pytest.approx(place, abs=1e-6)


def test_second_operator_by_another_topic_waits_until_the_first_is_silent() -> None:
    """A page sends twists while a gamepad drives: they are dropped and reported; later they are followed."""
    cell = Cell()
    said: list[str] = []
    cell.filter._drops = DropReporter("filter", said.append)
    page = cell.world.bus("page")
    jog = JOINT_JOG.publisher(page)
    cell.run(0.1)
    cell.hand.operator = OperatorInput(True, rates=np.array([0.5, 0.0, 0.0]))
    cell.run(0.2)
    page.timer(0.04, lambda: jog(JointJog(0.0, ("b",), np.array([-0.5]))))
    cell.run(0.4)
    assert cell.arm.place[1] == pytest.approx(0.0, abs=1e-6)
    assert any("another operator drives" in sentence for sentence in said)
    cell.hand.operator = NOTHING
    cell.run(0.1)
    INTERVENTION.publisher(page)(Flag(True))
    place = cell.arm.place.copy()
    cell.run(0.5)
    assert cell.arm.place[0] == pytest.approx(place[0], abs=0.01)
    assert cell.arm.place[1] < -0.15


def test_operator_drives_one_joint_and_the_policy_the_others() -> None:
    """Through the nodes: the topic names the operator's joint, and the loss of the device holds it alone."""
    cell = Cell()
    cell.bus.close()
    bus = cell.world.bus("teleop")
    TeleopNode(bus, cell.hand, arm(), cell.said.append, joints=("a",))
    policy, stamp = RAW.publisher(cell.world.bus("head")), [0.0]

    def speak() -> None:
        stamp[0] += TICK_S
        policy(JointTrajectory(1.0 + stamp[0], NAMES, np.full((1, 3), 0.3 * stamp[0]), np.array([TICK_S])))

    cell.world.bus("clock").timer(TICK_S, speak)

    def run(seconds: float) -> None:
        end_s = cell.world.now() + seconds
        bus.spin(lambda: cell.world.now() >= end_s - 1e-9)

    run(0.3)
    cell.hand.operator = OperatorInput(True, rates=np.array([-1.0, 1.0, 1.0]))
    run(0.5)
    assert cell.arm.place == pytest.approx([-0.3, 0.24, 0.24], abs=0.05)
    cell.hand.error = DriverError("The device is gone.")
    run(0.5)
    assert cell.arm.place == pytest.approx([-0.3, 0.39, 0.39], abs=0.05)
    TELEOP_JOINTS.publisher(cell.world.bus("page"))(Text("a+nose"))
    run(0.1)
    assert cell.filter.filter.human_joints.tolist() == [True, False, False]
