"""Pictures of a robot alone: its gripper is where it was asked to be."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from robo_rl.core.errors import ConfigError, UnknownNameError
from sim.render.projection import in_picture
from sim.scenes.robot_overlay import RobotOverlay, StillCamera

SIDE_PX = 96
# 1.3 m before the base, looking at it, with the up axis of the picture along the world's z.
CAMERA = StillCamera((1.3, 0.0, 0.35), (0.5, 0.5, 0.5, 0.5), math.radians(50.0))
AXES = np.array([[0.0, 0.0, 1.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])  # of the camera: right, up, back
DOWN = (0.0, 1.0, 0.0, 0.0)
ORIGIN = (0.0, 0.0, 0.0)


def along(points: int, last_m: tuple[float, float, float] = (0.5, 0.2, 0.3)) -> NDArray[np.float64]:
    """One path (1, t, 3) through the middle of the table."""
    return np.linspace((0.45, -0.2, 0.25), last_m, points)[None]


def pixel(place_m: NDArray[np.float64]) -> NDArray[np.float64]:
    """Column and row of a point [m; world frame]."""
    point = in_picture(place_m, np.array(CAMERA.position_m), AXES, CAMERA.fovy_rad)
    return (point.astype(float) + 1.0) * 0.5 * SIDE_PX - 0.5


def gripper_centre(robot: RobotOverlay, q_rad: Any) -> NDArray[np.float64]:
    """Centre of the pixels that change when the fingers move."""
    closed, wide = robot.draw(q_rad, 0.0)[0], robot.draw(q_rad, 1.0)[0]
    rows, columns = np.nonzero((closed != wide).any(-1))
    return np.array([columns.min() + columns.max(), rows.min() + rows.max()]) / 2.0


@pytest.mark.parametrize("quat", [None, DOWN], ids=["position", "pose"])
@pytest.mark.parametrize("name", ["arm6", "panda"])
def test_the_gripper_is_drawn_where_the_hand_was(name: str, quat: tuple[float, ...] | None) -> None:
    """Within 2 pixels, also for a base that is moved and turned."""
    for base_m, yaw_rad in ((ORIGIN, 0.0), ((0.1, 0.05, -0.05), 0.5)):
        robot, path_m = RobotOverlay(name, CAMERA, SIDE_PX, SIDE_PX, base_m, yaw_rad), along(3)
        quats = None if quat is None else np.tile(quat, (1, 3, 1))
        path, missing = robot.follow(path_m, quats)
        assert missing.max() < 1e-3
        for place_m, q_rad in zip(path_m[0], path[0], strict=True):
            assert np.abs(gripper_centre(robot, q_rad) - pixel(place_m)).max() <= 2.0, (base_m, place_m)
        robot.close()


def test_each_pose_starts_from_the_one_before() -> None:
    """A straight line of 40 points in steps of 1 cm turns no joint by more than 0.2 rad per point."""
    robot = RobotOverlay("panda", CAMERA, 8, 8, ORIGIN, 0.0)
    path, _ = robot.follow(along(40), np.tile(DOWN, (1, 40, 1)))
    assert np.abs(np.diff(path[0], axis=0)).max() < 0.2


def test_the_fingers_may_be_either_way_round() -> None:
    """Half a turn of the gripper about its axis looks the same, and is within the range of the wrist."""
    robot = RobotOverlay("arm6", CAMERA, 8, 8, ORIGIN, 0.0)
    for quat in (DOWN, (0.0, 0.0, 1.0, 0.0)):
        assert robot.follow(along(2), np.tile(quat, (1, 2, 1)))[1].max() < 1e-3


def test_a_point_out_of_reach_keeps_the_nearest_pose() -> None:
    """2 m before an arm whose links behind the shoulder are 0.76 m long: it is stretched."""
    robot = RobotOverlay("arm6", CAMERA, 8, 8, ORIGIN, 0.0)
    far_m = np.array([[[0.4, 0.0, 0.3], [2.0, 0.0, 0.2], [0.4, 0.0, 0.3]]])
    _, missing = robot.follow(far_m, None)
    assert missing[0, :, 1].max() == 0.0
    assert missing[0, [0, 2], 0].max() < 1e-3
    assert 1.24 - 1e-6 < missing[0, 1, 0] < 1.3


def test_unknown_robots_and_broken_camera_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="arm6, panda"):
        RobotOverlay("arm7", CAMERA, 8, 8, ORIGIN, 0.0)
    path = tmp_path / "camera.yaml"
    with pytest.raises(ConfigError, match=r"There is no file .* with the camera's pose"):
        StillCamera.load(path)
    good = {"position_m": [1, 0, 0.5], "quat": [1, 0, 0, 0], "fovy_rad": 0.8}
    for change, says in (
        ({"quat": [1, 0, 0]}, r"quat is \[1, 0, 0\], a list of 4 numbers was expected"),
        ({"fovy_rad": None}, "fovy_rad is None, a number was expected"),
        ({"fovy_rad": 45}, "expected fovy_rad between 0 and pi"),
        ({"quat": [0, 0, 0, 0]}, "a unit quaternion"),
        ({"position_m": [1, 0, math.nan]}, "position_m is"),
    ):
        path.write_text(json.dumps(good | change))
        with pytest.raises(ConfigError, match=says):
            StillCamera.load(path)
    path.write_text(json.dumps(good | {"fov": 1}))
    with pytest.raises(UnknownNameError, match="fov"):
        StillCamera.load(path)
    path.write_text(json.dumps(good))
    assert StillCamera.load(path).fovy_rad == 0.8
