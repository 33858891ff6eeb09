"""Laser and bumper compared with MuJoCo's geometry, paths on small maps by hand, and limits of wheels."""

from __future__ import annotations

import math
from contextlib import closing

import mujoco
import numpy as np
import pytest
import torch

from robo_rl.core.seeding import EpisodeSeeds
from sim.mobile.base import FREIGHT
from sim.mobile.drive import Wheels
from sim.mobile.plan import distances, followers, pursue
from sim.mobile.surroundings import Shapes, lidar
from sim.scenes.task_env import TaskVecEnv, make_task_env
from tests.sim.engines.worlds import ENGINES


@pytest.fixture(scope="module")
def env() -> TaskVecEnv:
    env = make_task_env("navigate", 12)
    env.reset(EpisodeSeeds("laser"))
    return env


def mujoco_of(env: TaskVecEnv, world: int) -> tuple[mujoco.MjModel, mujoco.MjData]:
    engine = env._engine
    data = mujoco.MjData(engine.scene.model)
    mujoco.mj_setState(engine.scene.model, data, engine._rows[world], engine._signature)
    mujoco.mj_forward(engine.scene.model, data)
    return engine.scene.model, data


def test_laser_equals_mujoco_rays(env: TaskVecEnv) -> None:
    """All round, in twelve rooms: equal distances to a hundredth of a millimetre."""
    bearing = torch.linspace(-math.pi, math.pi, 97, dtype=torch.float64)
    found = env.view.lidar_m(bearing, 30.0)
    base = env._engine.scene.body("base")
    for world in range(env.num_envs):
        model, data = mujoco_of(env, world)
        origin, hit = data.site("laser").xpos, np.zeros(1, np.int32)
        for angle, range_m in zip(bearing + env.view.yaw_rad[world], found[world], strict=True):
            way = np.array([math.cos(angle), math.sin(angle), 0.0])
            expected = mujoco.mj_ray(model, data, origin, way, None, 1, base, hit)
            assert float(range_m) == pytest.approx(expected, abs=1e-5)


def test_bumper_distance_equals_mujoco(env: TaskVecEnv) -> None:
    """The least distance of the base's cylinder to anything that collides."""
    for world in range(env.num_envs):
        model, data = mujoco_of(env, world)
        base = model.geom("base").id
        near = [
            mujoco.mj_geomDistance(model, data, base, i, 10.0, None)
            for i in range(model.ngeom)
            if model.geom_contype[i] == 2
        ]
        assert float(env.view.clearance_m[world]) == pytest.approx(min(near), abs=1e-3)


def test_rays_by_hand() -> None:
    """A box 2 m ahead, turned by 45 degrees, shows its corner; a post to the left its round side; nothing
    behind.
    """
    shapes = Shapes(
        torch.tensor([[[2.0, 0.0], [0.0, 3.0]]]), torch.tensor([[math.pi / 4, 0.0]]),
        torch.tensor([[0.1, 0.1]]), torch.tensor([0.5]),
    )  # fmt: skip
    bearing = torch.tensor([0.0, math.pi / 2, math.pi])
    found = lidar(torch.zeros(1, 2), torch.zeros(1), bearing, shapes, 9.0)
    torch.testing.assert_close(found, torch.tensor([[2.0 - 0.1 * math.sqrt(2.0), 2.5, 9.0]]))
    inside = lidar(torch.tensor([[0.0, 2.9]]), torch.zeros(1), bearing, shapes, 9.0)
    assert inside.eq(0.0).all()


def test_ways_lead_around_a_wall() -> None:
    """Three rows, a wall across the middle but for its last cell: the only way is through there, 2 sqrt 2 + 2
    steps.
    """
    cost = torch.ones(1, 3, 4)
    cost[0, 1, :3] = 1e3
    distance = distances(cost, torch.tensor([[0, 0]]), 1.0)
    assert float(distance[0, 2, 0]) == pytest.approx(4.0 + 2.0 * math.sqrt(2.0) - 0.0, abs=1e-6)
    at, seen = torch.tensor([[8]]), []
    for _ in range(6):
        at = followers(distance).gather(1, at)
        seen.append(int(at))
    assert seen == [9, 10, 7, 2, 1, 0]


def test_pursuit_turns_towards_the_path() -> None:
    found = pursue(torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, -1.0]]), torch.ones(3), 2.0)
    torch.testing.assert_close(found, torch.tensor([[1.0, 0.0], [0.0, 2.0], [0.0, -2.0]]))


def test_wheels_keep_the_curve_when_they_are_too_slow() -> None:
    """1 m/s and 2.5 rad/s would move the outer rim at 1.47 m/s: both are reduced alike. Rises take 1 s to 1
    m/s.
    """
    env = make_task_env("navigate", 1)
    wheels = Wheels(env._engine.scene, FREIGHT, torch.zeros(1, dtype=torch.float64))
    asked = torch.tensor([[1.0, 2.5]], dtype=torch.float64)
    twist = wheels.limited_twist(asked, asked)
    assert float(twist[0, 0] / twist[0, 1]) == pytest.approx(0.4)
    assert float(twist[0, 0] + 0.5 * FREIGHT.track_m * twist[0, 1]) == pytest.approx(FREIGHT.wheel_m_s)
    twist = torch.zeros(1, 2, dtype=torch.float64)
    for _ in range(20):
        twist = wheels.limited_twist(twist, torch.tensor([[1.0, 0.0]], dtype=torch.float64))
    assert float(twist[0, 0]) == pytest.approx(1.0)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("forward", "turn"), [(0.2, 0.0), (0.3, 1.0), (0.0, -1.5), (-0.2, 0.5)])
def test_base_follows_its_commands(engine: str, forward: float, turn: float) -> None:
    """After the rise it has the commanded speeds to 3 % and does not slip sideways."""
    with closing(make_task_env("navigate", 2, engine=engine, compiled=False)) as env:
        env.reset(EpisodeSeeds("drive"))
        for _ in range(24):
            env.step(torch.tensor([[forward, turn]]).expand(2, 2))
        torch.testing.assert_close(
            env.view.twist, torch.tensor([[forward, turn]] * 2).double(), rtol=0.03, atol=0.01
        )
        x, y, _ = env.view.physics.qvel[:, env.wiring.speed].unbind(-1)
        aside = y * env.view.yaw_rad.cos() - x * env.view.yaw_rad.sin()
        assert float(aside.abs().max()) < 0.02 * abs(forward) + 0.002
