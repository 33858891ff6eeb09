"""Observations of a policy: found by name, in the order of training, never invented."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hardware.loop.observation import ArmObserver, ObservationHistory
from hardware.messages import DepthImage, Image, JointState
from robo_rl.core.errors import CheckpointError, DataError
from robo_rl.core.spec import ArraySpec
from tests.hardware.bundles import arm_env

SPEC = arm_env(**{"image.top": ArraySpec((4, 6, 3), "uint8")}).obs
PICTURE = Image(0.0, np.full((4, 6, 3), 7, np.uint8))
GOAL = np.array([9.0])
JOINTS = JointState(
    0.0, ("c", "gripper", "a", "b"), np.array([3.0, 0.0, 1.0, 2.0]), np.array([0.3, 0.0, 0.1, 0.2])
)


def test_joints_are_found_by_name() -> None:
    seen = ArmObserver(SPEC).build(JOINTS, {"image.top": PICTURE}, GOAL)
    np.testing.assert_allclose(seen["state"], [1, 2, 3, 0.1, 0.2, 0.3, 9], rtol=1e-6)
    assert seen["image.top"] is PICTURE.pixels


SEEN = {"image.top": PICTURE}


@pytest.mark.parametrize(
    ("joints", "pictures", "goal", "words"),
    [
        (JOINTS, SEEN, None, "is shown 1 numbers of the task; the topic 'goal' has 0"),
        (JointState(0.0, ("a", "b"), np.zeros(2), np.zeros(2)), SEEN, GOAL, "lacks the joint c"),
        (JointState(0.0, ("a", "b", "c"), np.zeros(3)), SEEN, GOAL, "carries no velocities"),
        (JOINTS, {}, GOAL, "No picture of the camera 'top'"),
        (
            JOINTS,
            {"image.top": Image(0.0, np.zeros((6, 4, 3), np.uint8))},
            GOAL,
            "gives pictures of \\(6, 4, 3\\)",
        ),
        (JOINTS, SEEN, np.array([np.nan]), r"The topic 'goal' holds \[nan\], not finite numbers"),
        (
            replace(JOINTS, position_rad=np.full(4, np.inf)),
            SEEN,
            GOAL,
            "The robot's state is not finite",
        ),
    ],
)
def test_missing_inputs_are_reported(
    joints: JointState, pictures: dict[str, Image], goal: np.ndarray, words: str
) -> None:
    with pytest.raises(DataError, match=words):
        ArmObserver(SPEC).build(joints, pictures, goal)


def test_policy_without_a_goal_ignores_the_topic() -> None:
    """The simulated set publishes a goal by default, and so may a program that was started before."""
    spec = {"state": ArraySpec((3,), unit="rad: a, b, c")}
    np.testing.assert_allclose(ArmObserver(spec).build(JOINTS, {}, GOAL)["state"], [1, 2, 3])


def test_a_bundle_without_names_is_refused() -> None:
    with pytest.raises(CheckpointError, match="cannot tell which is which"):
        ArmObserver({"state": ArraySpec((3,), unit="SI")})
    with pytest.raises(CheckpointError, match="needs depth, which no node of an arm publishes"):
        ArmObserver({"depth": ArraySpec((3,))})


def test_depth_is_converted_as_in_training() -> None:
    """Metres. Unknown depths and those beyond 10 m have the depth of the simulators' sky."""
    observer = ArmObserver({"depth.top": ArraySpec((2, 2), unit="m")})
    depth = DepthImage(0.0, np.array([[0.5, np.nan], [np.inf, 12.0]], np.float32))
    seen = observer.build(JOINTS, {"depth.top": depth}, None)["depth.top"]
    assert seen.dtype == np.float32
    assert seen.tolist() == [[0.5, 10.0], [10.0, 10.0]]
    with pytest.raises(DataError, match="No depth of the camera 'top' has come yet"):
        observer.build(JOINTS, {}, None)
    with pytest.raises(DataError, match=r"gives depths of \(1, 2\), the policy is shown \(2, 2\)"):
        observer.build(JOINTS, {"depth.top": DepthImage(0.0, np.ones((1, 2), np.float32))}, None)


def test_point_clouds_are_refused_with_a_remedy() -> None:
    with pytest.raises(CheckpointError, match=r"points.top, which no node .* train with env=.*:senses=depth"):
        ArmObserver({"points.top": ArraySpec((64, 3), unit="m")})


def test_history_begins_with_the_first_observation() -> None:
    history = ObservationHistory(3)
    for value in (1.0, 2.0):
        history.push({"state": np.array([value])})
    assert history.stacked()["state"].ravel().tolist() == [1.0, 1.0, 2.0]
    history.reset()
    history.push({"state": np.array([5.0])})
    assert history.stacked()["state"].ravel().tolist() == [5.0, 5.0, 5.0]
