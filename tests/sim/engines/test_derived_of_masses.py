"""Quantities derived from masses on the device, compared with C MuJoCo. Needs no Warp and no GPU."""

from __future__ import annotations

from copy import deepcopy

import mujoco
import numpy as np
import pytest
import torch

from sim.engines.mjwarp.derived import DerivedOfMasses
from sim.engines.mujoco.change import DERIVED, change_model
from tests.sim.engines.warp_scenes import OBJECTS, scene_of

DERIVED_MJCF = """
<mujoco>
  <worldbody>
    <body><joint name="one" axis="0 1 0" armature="0.1"/><geom size="0.1" pos="0.3 0 0"/>
      <body pos="0.5 0 0"><joint name="two" axis="0 1 0"/><geom size="0.1" pos="0.2 0.1 0"/>
        <site name="tip" pos="0.3 0 0.1"/>
      </body>
    </body>
    <body pos="0 0 2"><freejoint/><geom size="0.1 0.2 0.3" type="box"/></body>
    <body pos="0 0 3"><joint type="ball"/><geom size="0.1 0.2 0.3" pos="0.1 0 0" type="box"/></body>
    <body pos="0 2 3"><geom size="0.1"/></body>
    <site name="wall" pos="1 0 1"/>
  </worldbody>
  <tendon>
    <fixed armature="0.2"><joint joint="one" coef="2"/><joint joint="two" coef="-1"/></fixed>
    <spatial><site site="tip"/><site site="wall"/></spatial>
  </tendon>
</mujoco>
"""


@pytest.mark.parametrize("name", [*OBJECTS, "all joints and tendons"])
def test_quantities_derived_from_masses_equal_those_of_c_mujoco(name: str) -> None:
    """mj_setConst on a model with scaled masses, world by world, to rounding in float64."""
    model = scene_of(name).model if name in OBJECTS else mujoco.MjModel.from_xml_string(DERIVED_MJCF)
    scale = 0.5 + 1.5 * torch.rand(4, model.nbody, generator=torch.Generator().manual_seed(0))
    found = DerivedOfMasses(model, torch.device("cpu")).of(scale)
    changed, data = deepcopy(model), mujoco.MjData(model)
    for world, factors in enumerate(scale):
        change_model(changed, model, {"mass_scale": factors}, data)
        expected = {field: getattr(changed, field) for field in DERIVED if getattr(changed, field).size}
        assert found.keys() == expected.keys()
        for field, value in expected.items():
            np.testing.assert_allclose(found[field][world].numpy(), value, rtol=1e-12, atol=1e-14)
