"""Image of the onboard camera: horizon, and distance and number of another drone."""

from __future__ import annotations

import numpy as np
import pytest

from robo_rl.core.errors import ConfigError
from sim.engines.bullet.body import hull
from sim.engines.bullet.camera import FAR_M
from sim.engines.bullet.motion import Motion, quaternion
from sim.engines.bullet.world import BulletWorld
from sim.engines.quad.craft import load_craft

pytest.importorskip("pybullet")

CRAFT = load_craft("cf2x_gym")


def test_floor_below_sky_above_and_a_drone_in_front() -> None:
    """Level, 1 m up: the horizon is in the middle. A drone 0.5 m ahead is in the centre and extends to its
    rim.
    """
    world = BulletWorld(CRAFT, 4, 1.0 / 240.0, per_arena=2)
    place = np.array([[0.0, 0.5, 0.0, 0.0], [0.0, 0.0, 0.0, 5.0], [1.0, 1.0, 1.0, 1.0]])
    world.place(Motion.at_rest(place))
    rgb, depth_m, names = world.camera(0, 64, 48)
    assert rgb.shape == (48, 64, 3)
    assert rgb.dtype == np.uint8
    assert depth_m.shape == names.shape == (48, 64)
    assert (names[:20, :8] == 0).all()
    assert (names[-8:] == 1).all()
    rows, columns = np.nonzero(names == 3)
    assert (rows >= 21).all()
    assert (rows <= 25).all()
    assert float(columns.mean()) == pytest.approx(32.0, abs=1.0)
    radius_m = hull(CRAFT)[0]
    assert 0.5 - 2.1 * radius_m < depth_m[names == 3].min() < 0.5 - 1.05 * radius_m
    assert depth_m[0, 0] == pytest.approx(FAR_M, rel=1e-3)
    lowest = np.arctan(np.tan(np.radians(30.0)) * 47.0 / 48.0)
    assert depth_m[-1, 32] == pytest.approx(1.0 / np.tan(lowest), rel=0.05)
    assert set(np.unique(world.camera(2, 64, 48).segmentation)) == {
        0,
        1,
    }  # the other arena's drone 3 is aside


def test_the_camera_turns_with_the_craft() -> None:
    """At 80 degrees nose down it sees only the floor, which is chequered."""
    world = BulletWorld(CRAFT, 1, 1.0 / 240.0)
    world.place(Motion.at_rest(np.array([[0.0], [0.0], [1.0]]), quaternion(np.array([[0.0], [1.4], [0.0]]))))
    rgb, depth_m, names = world.camera(0, 40, 40)
    assert (names == 1).all()
    assert depth_m.max() < 2.0
    assert len(np.unique(rgb.reshape(-1, 3), axis=0)) > 1
    with pytest.raises(ConfigError, match="pixels"):
        world.camera(0, 2, 2)
