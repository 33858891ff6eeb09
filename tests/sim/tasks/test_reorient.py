"""A hand that turns a cube: the contract, the gait, and dropped cubes."""

from __future__ import annotations

import math

import mujoco
import numpy as np
import pytest
import torch

from robo_rl.core.errors import ConfigError, UnknownNameError
from robo_rl.core.seeding import EpisodeSeeds
from sim.hands.drive import LEASH_RAD
from sim.hands.gait import Gait, leader, start_angle
from sim.registry import list_envs, make_env, make_expert
from sim.scenes.task_env import TaskVecEnv, make_task_env
from sim.tasks.hand.reorient import uniform_quat
from sim.vec.conformance import check_vec_env
from tests.sim.tasks.expert_run import run_expert


@pytest.mark.parametrize("name", ["hand/reorient", "hand/reorient:goal=any,randomise=wide"])
def test_it_keeps_the_contract(name: str) -> None:
    check_vec_env(make_env(name, 3, max_episode_steps=9, reward="dense"), steps=20)


@pytest.mark.pybullet
def test_it_keeps_the_contract_in_pybullet() -> None:
    check_vec_env(make_env("hand/reorient:engine=pybullet", 3, max_episode_steps=9), steps=20)


@pytest.mark.parametrize(("noise", "least"), [(0.0, 58), (0.2, 57)])
def test_the_gait_turns_the_cube_to_any_angle(noise: float, least: int) -> None:
    """60 goals up to half a turn away; also with noise of a fifth of a full command on every joint."""
    rate = run_expert("hand/reorient", 60, noise)
    assert rate.k >= least, str(rate)


@pytest.mark.pybullet
def test_gait_does_not_depend_on_the_engine() -> None:
    """Rigid contacts, other friction: the same expert."""
    rate = run_expert("hand/reorient:engine=pybullet", 8)
    assert rate.k >= 7, str(rate)


def test_noise_spoils_the_gait() -> None:
    assert run_expert("hand/reorient", 20, noise=1.0).k < 10


def placed(env: TaskVecEnv, cube_m: list[float]) -> None:
    """The cube of the first world there, at rest."""
    saved = env._engine.save()
    columns = env._engine.scene.qpos("cube")  # a row of MuJoCo's state begins with qpos
    saved["rows"][0, columns.start : columns.start + 3] = torch.tensor(cube_m, dtype=torch.float64)
    env._engine.load(saved)


def test_a_dropped_cube_ends_the_episode_as_a_failure() -> None:
    """Beside the palm it falls, and the other world continues. On the palm's edge the episode continues."""
    env = make_task_env("reorient", 2)
    env.reset(EpisodeSeeds(("dropped", 0)))
    home = env.view.q_rad.float()
    placed(env, [0.03, 0.0, 0.1575])
    assert not env.step(home)[2].any()
    placed(env, [0.2, 0.2, 0.14])
    for _ in range(5):
        _, reward, terminated, truncated, info = env.step(home)
        if bool(terminated.any()):
            break
    assert terminated.tolist() == [True, False]
    assert not truncated.any()
    assert not info["success"].any()
    assert not info["diverged"].any()
    assert reward.tolist() == [0.0, 0.0]
    assert info["final_obs"]["state"][0, 34] < -0.0275  # its middle is below the palm


def test_success_needs_the_orientation_for_five_steps() -> None:
    """A cube placed at its goal is solved after five steps; one on another face never is."""
    env = make_task_env("reorient", 2)
    env.reset(EpisodeSeeds(("solved", 0)))
    saved, columns = env._engine.save(), env._engine.scene.qpos("cube")
    goal = env.view.goal
    saved["rows"][0, columns.start + 3 : columns.stop] = goal[0]
    w, _, _, z = goal[1].tolist()
    tipped = [w, w, z, z]  # the goal, after a quarter turn about its own x axis
    saved["rows"][1, columns.start + 3 : columns.stop] = torch.tensor(
        tipped, dtype=torch.float64
    ) / math.sqrt(2.0)
    env._engine.load(saved)
    low, _ = torch.tensor(env.spec.action.low), torch.tensor(env.spec.action.high)
    away = torch.where(torch.arange(16) % 4 == 0, 0.0, low).expand(2, 16)  # fingers stretched out
    outcomes = [env.step(away)[4]["success"].tolist() for _ in range(6)]
    assert outcomes[3] == [False, False]
    assert outcomes[4] == [True, False]


def test_any_goal_is_any_and_has_no_script() -> None:
    """Goals are uniform in direction: each axis' mean over many is near zero."""
    env = make_env("hand/reorient:goal=any", 1)
    assert env.spec.name == "hand/reorient:goal=any"
    expert = make_expert("hand/reorient:goal=any", env=env)
    zero = torch.zeros(1, dtype=torch.long)
    with pytest.raises(ConfigError, match="about the vertical only"):
        expert.act(env.reset(EpisodeSeeds(("any", 0))), zero, zero)
    quat = uniform_quat(torch.rand(4000, 3, generator=torch.Generator().manual_seed(0)))
    torch.testing.assert_close(quat.norm(dim=-1), torch.ones(4000))
    up = 1.0 - 2.0 * (quat[:, 1] ** 2 + quat[:, 2] ** 2)  # the z axis' height: even in [-1, 1]
    assert abs(float(up.mean())) < 0.03
    assert float(up.var()) == pytest.approx(1.0 / 3.0, abs=0.02)


def test_fingertips_follow_the_jacobian() -> None:
    """Compared with MuJoCo's own, in a bent pose."""
    env = make_task_env("reorient", 1)
    env.reset(EpisodeSeeds(("jacobian", 0)))
    for _ in range(3):
        env.step(env.from_script(env.script()).float())
    view, scene = env.view, env._engine.scene
    data = mujoco.MjData(scene.model)
    data.qpos[:] = view.physics.qpos[0].numpy()
    mujoco.mj_kinematics(scene.model, data)
    mujoco.mj_comPos(scene.model, data)
    for finger, name in enumerate(("east", "north", "west", "south")):
        jac = np.zeros((3, scene.model.nv))
        mujoco.mj_jacSite(scene.model, data, jac, None, scene.model.site(f"{name}_tip").id)
        own = [scene.qvel(f"{name}{i}").start for i in range(4)]
        np.testing.assert_allclose(view.jacobian()[0, finger].numpy(), jac[:, own], atol=1e-9)
        np.testing.assert_allclose(view.tips_m[0, finger].numpy(), data.site(f"{name}_tip").xpos, atol=1e-9)


def test_leash_bounds_the_servo_targets() -> None:
    """For any command, no servo's target is further than the limit from its joint."""
    env = make_task_env("reorient", 1)
    env.reset(EpisodeSeeds(("leash", 0)))
    q_rad = env.view.q_rad
    ctrl = env._servo_targets(torch.tensor([env.spec.action.high], dtype=torch.float64))
    assert float((ctrl[:, env.wiring.servos] - q_rad).abs().max()) <= LEASH_RAD + 1e-12


def test_the_hand_has_the_published_measures() -> None:
    """Straight, a finger reaches 135.5 mm beyond its base; servos pull with 0.7 N m at most."""
    env = make_task_env("reorient", 1)
    model = env._engine.scene.model
    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)
    reach_m = np.linalg.norm(data.site("east_tip").xpos - data.body("east_base").xpos)
    assert reach_m == pytest.approx(0.0164 + 0.054 + 0.0384 + 0.0267, abs=1e-9)
    assert np.abs(model.actuator_forcerange).max() == 0.7
    assert model.nu == 16


def test_a_stroke_begins_square_to_the_faces_where_there_is_room() -> None:
    """Reach 0.6, stroke 0.4. A box at 0.1: either way from 0.1. At 0.5, to the left: 0.2 would be 0.3 askew;
    the next faces, at 0.5 - pi/2 = -1.07, are 0.47 from where fingers reach; so 0.2. At pi/4: -0.6, 0.19
    askew.
    """
    gait = Gait(reach_rad=0.6, stroke_rad=0.4)
    box = torch.tensor([0.1, 0.1, 0.5, math.pi / 4 - 1e-3, 0.1 + math.pi / 2])
    sense = torch.tensor([1.0, -1.0, 1.0, 1.0, 1.0])
    torch.testing.assert_close(start_angle(box, sense, gait), torch.tensor([0.1, 0.1, 0.2, -0.6, 0.1]))


def test_the_pair_that_holds_turns() -> None:
    """One holds: that one. Both: the one with more room. None: the nearer one, the first of two alike."""
    holding = torch.tensor([[False, True], [True, True], [False, False], [False, False]])
    room = torch.tensor([[0.9, 0.1], [0.2, 0.5], [0.1, 0.2], [0.1, 0.2]])
    off = torch.tensor([[0.0, 0.5], [0.1, 0.1], [0.3, 0.1], [0.1, 0.1]])
    assert leader(holding, room, off).tolist() == [[False, True], [False, True], [False, True], [True, False]]


@pytest.mark.slow
def test_compiled_equals_eager() -> None:
    ends = []
    for compiled in (True, False):
        env = make_task_env("reorient", 4, compiled=compiled, reward="dense")
        env.reset(EpisodeSeeds(("compiled", 0)))
        results = [env.step(env.from_script(env.script()).float()) for _ in range(5)]
        ends.append(torch.cat([results[-1][0]["state"], results[-1][1][:, None]], 1))
    torch.testing.assert_close(ends[0], ends[1], rtol=0, atol=1e-4)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("hand/reorint", "hand/reorient"),
        ("hand/reorient:robot=panda", "hand4"),
        ("hand/reorient:control=cartesian", "joint_position"),
        ("hand/reorient:goal=side", "upright"),
        ("arm/lift:goal=any", "reorient has"),
    ],
)
def test_mistakes_are_refused(name: str, says: str) -> None:
    assert "hand/reorient" in list_envs()
    with pytest.raises((UnknownNameError, ConfigError), match=says):
        make_env(name, 1)
