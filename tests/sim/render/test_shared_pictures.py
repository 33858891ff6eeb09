"""Simulations of one scene share a renderer, and each gets pictures of its own bodies."""

from __future__ import annotations

import gc

import mujoco
import numpy as np

from sim.render import pictures
from sim.render.pictures import CameraPictures
from tests.sim.render.test_renderer import needs_opengl

XML = """<mujoco><worldbody><light pos="0 0 3"/>
<camera name="top" pos="0 0 2"/><geom type="plane" size="2 2 .1"/>
<body name="box" pos="0 0 .2"><geom type="box" size=".2 .2 .2" rgba="1 0 0 1"/></body>
</worldbody></mujoco>"""


@needs_opengl
def test_a_shared_renderer_draws_each_simulation_and_goes_with_the_last() -> None:
    """A moved box moves in its own simulation's picture alone."""
    models = [mujoco.MjModel.from_xml_string(XML) for _ in range(2)]
    models[1].body("box").pos[0] = 0.6
    both = [CameraPictures("boxes", model, mujoco.MjData(model), 32, ["top"]) for model in models]
    first, second = (each.take()["image.top"] for each in both)
    assert not np.array_equal(first, second)
    assert np.array_equal(first, both[0].take()["image.top"])
    assert [key for key in pictures._SHARED if key[0] == "boxes"] == [("boxes", 32)]
    for each in both:
        each.close()
    gc.collect()
    assert ("boxes", 32) not in pictures._SHARED
