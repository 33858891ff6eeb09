"""A hand that a page tracks: frames and scale by hand-worked numbers, the clutch, and the arm."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hardware.description import load_description
from hardware.kinematics import tool_pose
from robo_rl.apps.recording.driving.tracked_hand import GAIN_HZ, TrackedHand
from robo_rl.apps.recording.requests import PlainRequest, parse_request
from robo_rl.apps.recording.shared_state import MOST_WAITING, SharedState
from robo_rl.core.errors import ConfigError
from tests.apps.recording.cell import RecordingCell, make_cell

ROBOT = load_description("sim_arm_gripper")
AT_RAD = np.array([0.3, 0.4, 0.9, 0.2, 0.5, 0.1, 0.02])
LEVEL = (0.0, 0.0, 0.0, 1.0)


class HandOfTest:
    """A tracked hand whose time stands still, and the numbers of its messages."""

    def __init__(self) -> None:
        self.hand, self.seq = TrackedHand(ROBOT, lambda: 0.0), 0

    def at(self, *place: float, quat: Sequence[float] = LEVEL, **more: Any) -> Any:
        """Command for a hand at this place of WebXR's frame."""
        self.seq += 1
        pose = {"seq": self.seq, "clutch": True, "position_m": list(place), "quat_xyzw": list(quat)}
        self.hand.put(pose | more)
        return self.hand.next(AT_RAD, 0.02)


def test_axes_of_webxr_become_those_of_the_robot() -> None:
    """10 mm right, up and backwards of the operator are -y, +z and -x of the base, at 10/s: 0.1 m/s each."""
    hand = HandOfTest()
    np.testing.assert_allclose(hand.at(1.0, 1.2, -0.3).twist, np.zeros(6), atol=1e-9)
    np.testing.assert_allclose(hand.at(1.01, 1.21, -0.29).twist[:3], [-0.1, -0.1, 0.1], atol=1e-9)
    turned = (0.0, math.sin(0.02), 0.0, math.cos(0.02))  # 0.04 rad about y, which is up
    wanted = [0.0, 0.0, 0.0, 0.0, 0.0, 0.04 * GAIN_HZ]
    np.testing.assert_allclose(hand.at(1.0, 1.2, -0.3, quat=turned).twist, wanted, atol=1e-9)


def test_scale_and_where_the_operator_looks() -> None:
    """Half of the motion; for one who faces the arm, x and y change their signs."""
    hand = HandOfTest()
    hand.hand.follow(0.5, math.pi)
    hand.at(0.0, 0.0, 0.0)
    np.testing.assert_allclose(hand.at(0.01, 0.01, 0.01).twist[:3], [0.05, 0.05, 0.05], atol=1e-9)


def test_a_new_hold_begins_where_the_hand_is() -> None:
    """Released and held again within one tick, 0.1 m away: the arm does not move."""
    hand = HandOfTest()
    hand.at(0.0, 0.0, 0.0)
    hand.hand.release()
    np.testing.assert_allclose(hand.at(0.1, 0.0, 0.0).twist, np.zeros(6), atol=1e-9)
    assert hand.hand.feedback.driving
    hand.hand.release()
    assert hand.hand.next(AT_RAD, 0.02) is None
    assert not hand.hand.feedback.driving


def test_speed_is_limited_and_the_gripper_opens() -> None:
    """0.12 m of motion asks for 1.2 m/s; half of 0.25 m/s are left. The gripper goes towards open."""
    hand = HandOfTest()
    hand.hand.speed = 0.5
    hand.at(0.0, 0.0, 0.0)
    command = hand.at(0.0, 0.12, 0.0, gripper=1.0)
    np.testing.assert_allclose(np.linalg.norm(command.twist[:3]), 0.125, rtol=1e-6)
    gripper = ROBOT.gripper
    assert gripper is not None
    assert command.gripper * (gripper.open_at - gripper.closed_at) > 0.0


def hold(cell: RecordingCell, *places: Sequence[float]) -> None:
    """Send a pose every 20 ms, as a phone does."""
    for number, place in enumerate(places):
        cell.ask(
            kind="pose",
            seq=number + 1,
            clutch=True,
            position_m=[float(value) for value in place],
            quat_xyzw=list(LEVEL),
        )
        cell.run(0.02)


def test_the_arm_repeats_the_motion_and_stops_in_the_tick_of_a_release(tmp_path: Path) -> None:
    """The hand rises by 40 mm: so does the tool of the small arm, whose three joints cannot turn it as well
    as move it; without messages for 0.15 s, and by a release, nothing moves any more.
    """
    cell = make_cell(tmp_path / "data")
    place_of = tool_pose(cell.robot)
    start_m, _ = place_of(cell.arm.q_rad)
    hold(cell, *([0.0, 0.001 * min(step, 40), 0.0] for step in range(80)))
    assert cell.node.drive is not None
    assert cell.node.drive.moving
    rise_m = place_of(cell.arm.q_rad)[0][2] - start_m[2]
    assert 0.01 < rise_m < 0.045
    cell.run(0.3)
    assert not cell.node.drive.moving
    here_rad = cell.arm.q_rad.copy()
    cell.run(0.2)
    np.testing.assert_array_equal(cell.arm.q_rad, here_rad)
    hold(cell, *([0.0, 0.05 + 0.002 * step, 0.0] for step in range(20)))
    cell.ask(kind="release")
    cell.run(0.02)
    assert not cell.node.drive.moving


def test_poses_that_no_page_sends_are_refused() -> None:
    """By the schema of every message, and by the length of a rotation."""
    good = '{"kind": "pose", "seq": 1, "clutch": true, "position_m": [0, 1, 2], "quat_xyzw": [0, 0, 0, 1]}'
    parse_request(good)
    for old, new in (
        ("2]", "NaN]"),
        ("2]", "200]"),
        ("true", "1"),
        ("[0, 1, 2]", "[0, 1]"),
        ('"seq"', '"s"'),
    ):
        with pytest.raises(ConfigError, match="refused"):
            parse_request(good.replace(old, new))


def test_a_queue_that_nobody_reads_stays_short() -> None:
    """The bus's thread hangs: input is dropped, an emergency stop and a release are not."""
    shared, drive = (
        SharedState(),
        parse_request('{"kind": "drive", "mode": "tool", "values": [1, 0, 0, 0, 0, 0]}'),
    )
    taken = [shared.ask(drive, urgent=False) for _ in range(MOST_WAITING + 10)]
    assert (sum(taken), taken[-1]) == (MOST_WAITING, False)
    assert shared.ask(PlainRequest(kind="release"))
    assert len(shared.requests()) == MOST_WAITING + 1
