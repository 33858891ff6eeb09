"""What a policy is shown: by name, in the order of training, and never made up."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hardware.loop.observation import ArmObserver, History
from hardware.messages import Image, JointState
from robo_rl.core.errors import CheckpointError, DataError
from robo_rl.core.spec import ArraySpec
from tests.hardware.bundles import arm_env

SPEC = arm_env(**{"image.top": ArraySpec((4, 6, 3), "uint8")}).obs
PICTURE = Image(0.0, np.full((4, 6, 3), 7, np.uint8))
GOAL = np.array([9.0])
JOINTS = JointState(0.0, ("c", "gripper", "a", "b"), np.array([3.0, 0.0, 1.0, 2.0]), np.array([0.3, 0.0, 0.1, 0.2]))


def test_joints_are_found_by_name() -> None:
    seen = ArmObserver(SPEC).build(JOINTS, {"top": PICTURE}, GOAL)
    np.testing.assert_allclose(seen["state"], [1, 2, 3, 0.1, 0.2, 0.3, 9], rtol=1e-6)
    assert seen["image.top"] is PICTURE.pixels


@pytest.mark.parametrize(
    ("joints", "images", "goal", "words"),
    [
        (JOINTS, {"top": PICTURE}, None, "is shown 1 numbers of the task; the topic 'goal' has 0"),
        (JointState(0.0, ("a", "b"), np.zeros(2), np.zeros(2)), {"top": PICTURE}, GOAL, "lacks the joint c"),
        (JointState(0.0, ("a", "b", "c"), np.zeros(3)), {"top": PICTURE}, GOAL, "carries no velocities"),
        (JOINTS, {}, GOAL, "No picture of the camera 'top'"),
        (JOINTS, {"top": Image(0.0, np.zeros((6, 4, 3), np.uint8))}, GOAL, "gives pictures of \\(6, 4, 3\\)"),
        (JOINTS, {"top": PICTURE}, np.array([np.nan]), r"The topic 'goal' holds \[nan\], not finite numbers"),
        (replace(JOINTS, position_rad=np.full(4, np.inf)), {"top": PICTURE}, GOAL, "The robot's state is not finite"),
    ],
)
def test_what_is_missing_is_said(joints: JointState, images: dict[str, Image], goal: np.ndarray, words: str) -> None:
    with pytest.raises(DataError, match=words):
        ArmObserver(SPEC).build(joints, images, goal)


def test_a_bundle_without_names_is_refused() -> None:
    with pytest.raises(CheckpointError, match="cannot tell which is which"):
        ArmObserver({"state": ArraySpec((3,), unit="SI")})
    with pytest.raises(CheckpointError, match="needs depth, which no node of an arm tells"):
        ArmObserver({"depth": ArraySpec((3,))})


def test_history_begins_with_the_first_observation() -> None:
    history = History(3)
    for value in (1.0, 2.0):
        history.push({"state": np.array([value])})
    assert history.stacked()["state"].ravel().tolist() == [1.0, 1.0, 2.0]
    history.reset()
    history.push({"state": np.array([5.0])})
    assert history.stacked()["state"].ravel().tolist() == [5.0, 5.0, 5.0]
