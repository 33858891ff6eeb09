"""The MuJoCo engine's shortcuts change no motion: compared with `mj_step` on the scene as written."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import mujoco
import numpy as np
import pytest
import torch

from robo_rl.core.seeding import EpisodeSeeds
from sim.asset_files import ASSETS
from sim.engines.mujoco.change import change_model
from sim.engines.mujoco.engine import MujocoEngine
from sim.engines.mujoco.motion_model import motion_model, weigh_by_forces, weights
from sim.engines.scene import compile_scene
from sim.scenes.task_env import make_task_env
from tests.sim.engines.worlds import scene_of

MASSES = [1.3, 0.8]
_THINGS = """<worldbody><geom type="plane" size="1 1 1"/>
    <body name="arm" gravcomp="1"><joint axis="0 1 0"/><geom size="0.1"/>
    <body name="hand" gravcomp="0.5"><joint axis="0 1 0"/><geom size="0.1" pos="0.3 0 0"/></body></body>
    <body name="ball" pos="0 0 1"><freejoint/><geom size="0.1" mass="2"/></body></worldbody>"""


def plain_step(model: Any, engine: MujocoEngine, world: int, ctrl: Any) -> Any:
    """mujoco.MjData after one step of the full model from a world's state."""
    data = mujoco.MjData(model)
    mujoco.mj_setState(model, data, engine._rows[world], engine._signature)
    data.ctrl[:] = ctrl
    mujoco.mj_step(model, data)
    return data


@pytest.mark.parametrize(
    ("task", "changed"), [("lift", True), ("peg_insert", False), ("drawer", False), ("reorient", True)]
)
def test_motion_is_that_of_the_scene_as_written(task: str, changed: bool) -> None:
    """Sub-steps of the expert's episodes, each from the engine's own state, differ only by rounding.

    One at a time, because the number of contact points of a peg and a finger may depend on rounding. Solvers
    stop at 1e-8 of the largest force, with or without islands, which is about 1e-9 m here.
    """
    env: Any = make_task_env(task, len(MASSES), terminate_on_success=False)
    env.reset(EpisodeSeeds(("motion", 0)))
    engine = env._engine
    models = [deepcopy(engine.scene.model) for _ in MASSES]
    if changed:
        factors = torch.tensor(MASSES, dtype=torch.float64)[:, None].expand(-1, models[0].nbody)
        engine.randomise(torch.arange(len(MASSES)), {"mass_scale": factors})
        for model, factor in zip(models, factors, strict=True):
            change_model(model, engine.scene.model, {"mass_scale": factor}, mujoco.MjData(model))
    for _ in range(20):
        action = env.from_script(env.script()).float()
        ctrl = env._servo_targets(action.to(env._memory))
        for _ in range(10):
            plain = [plain_step(model, engine, i, ctrl[i].numpy()) for i, model in enumerate(models)]
            engine.step(ctrl, 1)
            seen = engine.physics()
            for i, data in enumerate(plain):
                np.testing.assert_allclose(seen.qpos[i].numpy(), data.qpos, rtol=0.0, atol=1e-7)
                touch = [data.sensor(name).data[0] for name in engine.scene.touch]
                np.testing.assert_allclose(seen.touch_n[i].numpy(), touch, rtol=1e-4, atol=1e-3)
        env._physics = engine.physics()
    env.close()


def test_sensors_are_those_of_the_last_sub_step() -> None:
    """Sensors are skipped in all but the last: ten sub-steps at once equal ten single ones bit for bit."""
    env: Any = make_task_env("lift", 2)
    env.reset(EpisodeSeeds(("felt", 0)))
    while not (env.view.physics.touch_n > 0.5).all():
        env.step(env.script().float())
    engine, saved, ctrl = env._engine, env._engine.save(), torch.from_numpy(env._engine._part("CTRL").copy())
    engine.step(ctrl, 10)
    at_once = engine.physics()
    engine.load(saved)
    for _ in range(10):
        engine.step(ctrl, 1)
    assert at_once.touch_n.gt(0.5).all()
    assert at_once.touch_n.equal(engine.physics().touch_n)
    assert at_once.qpos.equal(engine.physics().qpos)


def test_removed_shapes_keep_their_mass() -> None:
    scene = compile_scene(ASSETS / "lift.xml", ASSETS / "panda.xml")
    motion = motion_model(scene)
    assert motion.ngeom == 4 < scene.model.ngeom  # the table, the cube and two fingertips
    np.testing.assert_allclose(motion.body_mass, scene.model.body_mass, rtol=1e-12)
    np.testing.assert_allclose(motion.body_inertia, scene.model.body_inertia, rtol=1e-9)


def test_uncompensated_weight_is_an_external_force() -> None:
    """A ball of 2 kg weighs 19.62 N, half a hand half of its own; a held arm weighs nothing."""
    scene = scene_of(_THINGS)
    model = motion_model(scene)
    assert weigh_by_forces(model) is None  # two forces instead of two: nothing to gain
    model.body_gravcomp[scene.body("hand")] = 1.0
    gravity = weigh_by_forces(model)
    assert gravity is not None
    assert not model.opt.gravity.any()
    model.body_gravcomp[scene.body("hand")] = 0.5
    down = weights(model, gravity)[:, 2]
    assert down[scene.body("ball")] == pytest.approx(-19.62)
    assert down[scene.body("arm")] == 0.0
    assert down[scene.body("hand")] == pytest.approx(-9.81 * 0.5 * model.body_mass[scene.body("hand")])


def test_without_compensation_gravity_is_mujocos() -> None:
    assert (
        weigh_by_forces(
            motion_model(scene_of(_THINGS.replace(' gravcomp="1"', "").replace(' gravcomp="0.5"', "")))
        )
        is None
    )
