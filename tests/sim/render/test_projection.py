"""Places of a scene in its pictures."""

from __future__ import annotations

import math

import mujoco
import numpy as np

from sim.render.projection import OUTSIDE, in_camera, in_picture
from sim.render.renderer import MujocoRenderer
from tests.sim.render.test_renderer import needs_opengl

SCENE = """
<mujoco>
  <asset><material name="white" rgba="1 1 1 1" emission="1"/></asset>
  <worldbody>
    <camera name="side" pos="0.3 -1 0.4" xyaxes="1 0.2 0 -0.1 0.3 1" fovy="60"/>
    <geom name="ball" type="sphere" size="0.04" pos="0.2 0.1 0.3" material="white"/>
  </worldbody>
</mujoco>
"""


def test_points_of_a_camera_along_the_axes() -> None:
    """fovy 90 degrees: one metre ahead, the picture's edges are one metre from its middle."""
    origin, axes, right_angle = np.zeros(3), np.eye(3), math.pi / 2.0
    for place_m, point in (
        ([0.0, 0.0, -1.0], [0.0, 0.0]),
        ([1.0, 0.0, -1.0], [1.0, 0.0]),
        ([0.0, 1.0, -2.0], [0.0, -0.5]),
        ([0.0, 0.0, 1.0], [0.0, 0.0]),
        ([5.0, -5.0, 1.0], [OUTSIDE, OUTSIDE]),
    ):
        found = in_picture(np.array(place_m), origin, axes, right_angle)
        np.testing.assert_allclose(found, point, atol=1e-6)
    wide = in_picture(np.array([1.0, 0.0, -1.0]), origin, axes, right_angle, aspect=2.0)
    np.testing.assert_allclose(wide, [0.5, 0.0], atol=1e-6)


@needs_opengl
def test_a_ball_is_where_mujoco_draws_it() -> None:
    """The middle of the white pixels of a picture of 200 x 200 is at most one pixel away."""
    model = mujoco.MjModel.from_xml_string(SCENE)
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    renderer = MujocoRenderer(model, data, 200, 200, "side")
    try:
        white = renderer.render().min(axis=2) > 200
    finally:
        renderer.close()
    rows, columns = np.nonzero(white)
    drawn_px = np.array([columns.mean() + 0.5, rows.mean() + 0.5])
    point = in_camera(model, data, "side", data.geom("ball").xpos)
    assert np.abs(0.5 * (point + 1.0) * 200 - drawn_px).max() < 1.0
