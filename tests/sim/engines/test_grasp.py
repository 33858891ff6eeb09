"""Grasping in every engine: gripped objects are held, lifted and felt."""

from __future__ import annotations

from contextlib import closing
from functools import cache

import pytest
import torch
from torch import Tensor

from robo_rl.core.seeding import EpisodeSeeds
from sim.asset_files import ASSETS
from sim.engines.scene import compile_scene
from sim.scenes.task_env import TaskVecEnv, make_task_env
from tests.sim.engines.worlds import ENGINES, engine_of, start_of


def in_hand(env: TaskVecEnv, thing: str) -> Tensor:
    """Position of the object relative to the tool [m], in world axes."""
    return env.view.object_pose(thing).m - env.view.tool.m


@cache
def lifted(name: str) -> tuple[Tensor, Tensor, Tensor]:
    """(height [m], slip [m], touch [N]) of four cubes, lifted by the expert and moved about."""
    with closing(make_task_env("lift", 4, engine=name, terminate_on_success=False)) as env:
        env.reset(EpisodeSeeds(("grasp", 0)))
        for _ in range(40):
            env.step(env.script().float())
        held, action = in_hand(env, "cube"), torch.zeros(4, env.spec.action.dim)
        action[:, -1] = -1.0
        for step in range(20):  # a second of waving sideways with closed fingers
            action[:, 0] = 1.0 if step % 10 < 5 else -1.0
            env.step(action)
        return (
            env.view.object_pose("cube").m[:, 2],
            (in_hand(env, "cube") - held).norm(dim=1),
            env.view.physics.touch_n,
        )


@pytest.mark.parametrize("name", ENGINES)
def test_a_cube_is_lifted_and_stays_in_the_fingers(name: str) -> None:
    """All four are lifted, and motion moves none by more than 6 mm between the fingertips."""
    height_m, slip_m, _ = lifted(name)
    assert height_m.min() > 0.08
    assert slip_m.max() < 0.006


@pytest.mark.parametrize("name", ENGINES)
def test_touch_equals_the_servo_force(name: str) -> None:
    """1,000 N/m at 2 cm of cube: 20 N per side, less the compliance of contacts and the effect of motion."""
    touch_n = lifted(name)[2]
    assert touch_n.mean() == pytest.approx(20.0, abs=2.0)
    assert (touch_n - 20.0).abs().max() < 5.0


@cache
def held_peg(name: str) -> tuple[Tensor, Tensor]:
    """Position of the peg in the hand at the start and after two seconds of holding still."""
    with closing(make_task_env("peg_insert", 4, engine=name)) as env:
        env.reset(EpisodeSeeds(("peg", 0)))
        start, still = in_hand(env, "peg"), torch.zeros(4, env.spec.action.dim)
        for _ in range(40):
            env.step(still)
        return start, in_hand(env, "peg")


@pytest.mark.parametrize("name", ENGINES)
def test_a_peg_stays_where_it_is_held(name: str) -> None:
    """Two seconds: MuJoCo's soft friction creeps by 2 mm/s under the weight, Bullet's does not."""
    start, end = held_peg(name)
    assert (end - start).norm(dim=1).max() < (0.0005 if name == "pybullet" else 0.006)


@pytest.mark.parametrize("name", ENGINES)
def test_hard_things_do_not_sink_into_each_other(name: str) -> None:
    """A cube at rest is on the table within a tenth of a millimetre."""
    with closing(make_task_env("lift", 2, engine=name)) as env:
        env.reset(EpisodeSeeds(("rest", 0)))
        action = torch.zeros(2, env.spec.action.dim)
        for _ in range(10):
            env.step(action)
        torch.testing.assert_close(
            env.view.object_pose("cube").m[:, 2], torch.full((2,), 0.02).double(), rtol=0.0, atol=1e-4
        )


@pytest.mark.parametrize("name", ENGINES)
def test_a_peg_that_is_dropped_spinning_comes_to_rest(name: str) -> None:
    """After any landing at 90 rad/s it never spins half as fast again: contacts at 5 ms steps add no
    energy.
    """
    scene = compile_scene(ASSETS / "peg_insert.xml", ASSETS / "panda.xml")
    worlds, draw = 12 if name == "pybullet" else 60, torch.Generator().manual_seed(0)
    start = start_of(scene, worlds)
    turn = torch.randn(worlds, 4, generator=draw, dtype=torch.float64)
    spin = torch.randn(worlds, 3, generator=draw, dtype=torch.float64)
    start.qpos[:, scene.qpos("peg")] = torch.nn.functional.pad(turn / turn.norm(dim=1, keepdim=True), (3, 0))
    start.qpos[:, scene.qpos("peg")][:, :3] = torch.tensor([0.5, 0.3, 0.07], dtype=torch.float64)
    qvel = torch.zeros(worlds, scene.model.nv, dtype=torch.float64)
    qvel[:, scene.qvel("peg")][:, 3:] = 90.0 * spin / spin.norm(dim=1, keepdim=True)
    fastest = torch.zeros(worlds, dtype=torch.float64)
    with closing(engine_of(name, scene, worlds)) as engine:
        engine.set_state(torch.arange(worlds), start._replace(qvel=qvel))
        for _ in range(20):
            engine.step(start.ctrl, 10)
            fastest = fastest.maximum(engine.physics().qvel[:, scene.qvel("peg")][:, 3:].norm(dim=1))
    assert fastest.max() < 1.5 * 90.0
