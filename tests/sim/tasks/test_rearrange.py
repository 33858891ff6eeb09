"""Base and arm together: frames compared with MuJoCo's, tool commands, lost cubes, images, the expert."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import mujoco
import pytest
import torch

from robo_rl.core.seeding import EpisodeSeeds
from sim.bodies.rotation import about_z, rotate
from sim.registry import make_env, make_expert
from sim.scenes.task_env import TaskVecEnv, make_task_env
from sim.tasks.mobile.rearrange import DEPTH_M, RearrangeTask
from sim.vec.conformance import check_vec_env

STILL = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0)


def test_it_keeps_the_contract() -> None:
    check_vec_env(
        make_env("mobile/rearrange:randomise=mobile", 3, max_episode_steps=9, reward="dense"), steps=20
    )


def test_pictures_with_depth_keep_the_contract() -> None:
    """RGB-D of the mast and the wrist, in addition to the robot's own state."""
    name = "mobile/rearrange:cameras=head+wrist,senses=rgb+depth,state=robot,image_size=24"
    env = make_env(name, 2, max_episode_steps=5)
    assert set(env.spec.obs) == {"state", "image.head", "image.wrist", "depth.head", "depth.wrist"}
    assert "cube" not in env.spec.obs["state"].unit
    check_vec_env(env, steps=8)


@pytest.mark.pybullet
def test_pybullet_keeps_the_contract() -> None:
    check_vec_env(make_env("mobile/rearrange:engine=pybullet", 2, max_episode_steps=6), steps=8)


def driven(lanes: int = 3, **options: Any) -> TaskVecEnv:
    """Bases that have turned and moved."""
    env = make_task_env("rearrange", lanes, **options)
    env.reset(EpisodeSeeds("frames"))
    for _ in range(15):
        env.step(torch.tensor([[0.1, 1.0, *STILL[2:]]]).expand(lanes, 7))
    return env


def test_the_bases_frame_is_mujocos() -> None:
    """Tool, cube and links from the base, by MuJoCo's own transform of its bodies."""
    env = driven()
    view, model = env.view, env._engine.scene.model
    links = env.wiring.arm.chain.links
    for world in range(3):
        data = mujoco.MjData(model)
        env.pose_bodies(data, world)
        turn, origin = data.body("base").xmat.reshape(3, 3), data.body("base").xpos

        def seen(point_m: Any, turn: Any = turn, origin: Any = origin) -> torch.Tensor:
            return torch.from_numpy(turn.T @ (point_m - origin))

        mujoco.mj_kinematics(model, data)
        torch.testing.assert_close(view.local.tool.m[world], seen(data.site("tool").xpos), rtol=0, atol=1e-9)
        torch.testing.assert_close(
            view.local.object_pose("cube").m[world], seen(data.body("cube").xpos), rtol=0, atol=1e-9
        )
        torch.testing.assert_close(view.links.m[world, 3], seen(data.xpos[links[3]]), rtol=0, atol=1e-9)


def test_the_tool_is_commanded_in_the_bases_axes() -> None:
    """Half a step ahead, five times, by bases in any direction: 6 cm ahead, and the base stays."""
    env = driven()
    for _ in range(20):  # until the base has come to rest
        env.step(torch.tensor([STILL]).expand(3, 7))
    before, stood = env.view.local.tool.m, env.view.xy_m
    for i in range(15):
        env.step(torch.tensor([[0.0, 0.0, 0.5 * (i < 5), *STILL[3:]]]).expand(3, 7))
    moved = env.view.local.tool.m - before
    torch.testing.assert_close(moved, torch.tensor([[0.0625, 0.0, 0.0]] * 3).double(), rtol=0, atol=0.006)
    assert float((env.view.xy_m - stood).norm(dim=-1).max()) < 0.01


def test_the_tool_rides_on_the_base() -> None:
    """While the base turns by more than half a turn, the tool stays within 2 cm of its initial place."""
    env = make_task_env("rearrange", 3)
    env.reset(EpisodeSeeds("ride"))
    before, yaw = env.view.local.tool.m, env.view.yaw_rad
    for _ in range(40):
        env.step(torch.tensor([[0.0, 2.0, *STILL[2:]]]).expand(3, 7))
    assert float((env.view.yaw_rad - yaw).min()) > 3.0
    assert float((env.view.local.tool.m - before).norm(dim=-1).max()) < 0.02


def test_the_observation_is_laid_out_as_named() -> None:
    env = driven()
    obs = env.step(torch.tensor([STILL]).expand(3, 7))[0]["state"].double()
    columns, start = {}, 0
    for name, count, _ in env.task.obs_parts:
        columns[name] = obs[:, start : start + count]
        start += count
    assert obs.shape[1] == start == 39
    view = env.view
    back = about_z(-view.yaw_rad)
    floor = torch.nn.functional.pad(view.xy_m, (0, 1))
    for name, place in (("cube", view.object_pose("cube").m), ("goal from base", view.goal)):
        torch.testing.assert_close(columns[name], rotate(back, place - floor), rtol=0, atol=1e-5)
    torch.testing.assert_close(
        columns["cube from tool"], columns["cube"] - columns["tool"], rtol=0, atol=1e-5
    )
    torch.testing.assert_close(
        columns["tables"][:, 2:], view.from_base(view.body("to").m[:, :2]), rtol=0, atol=1e-5
    )
    torch.testing.assert_close(columns["joints"], view.q_rad, rtol=0, atol=1e-5)


def test_starts_follow_the_task() -> None:
    """In 500 rooms: cube and place on tables at opposite walls, 7 to 15 cm from the edge; the base touches
    nothing.
    """
    env = make_task_env("rearrange", 500, compiled=False, threads=1)
    env.reset(EpisodeSeeds("starts"))
    view = env.view
    for spot, name in ((view.object_pose("cube").m, "from"), (view.goal, "to")):
        table = view.body(name)
        ahead, aside, up = rotate(table.quat * torch.tensor([1.0, -1.0, -1.0, -1.0]), spot - table.m).unbind(
            -1
        )
        assert float(ahead.min()) >= DEPTH_M - 0.15 - 1e-6
        assert float(ahead.max()) <= DEPTH_M - 0.07 + 1e-6
        assert float(aside.abs().max()) <= 0.3 + 1e-6
        assert float((up - 0.422).abs().max()) < 1e-6
    assert bool((view.object_pose("cube").m[:, 0] * view.goal[:, 0] < 0.0).all())
    assert float(view.clearance_m.min()) > 0.1


def test_a_dropped_cube_loses_the_episode() -> None:
    """The expert grasps it and drives off; the fingers open over the floor."""
    env: Any = make_task_env("rearrange", 2)
    env.reset(EpisodeSeeds("drop"))
    lost = torch.zeros(2, dtype=torch.bool)
    for _ in range(400):
        action = env.from_script(env.script()).float()
        view = env.view
        tables = torch.stack(
            [(view.body(name).m - view.object_pose("cube").m)[:, :2].norm(dim=-1) for name in ("from", "to")]
        )
        over_floor = (tables.amin(0) > 0.8) & (view.object_pose("cube").m[:, 2] > 0.5)
        action[over_floor, 6] = 1.0
        _, _, terminated, _, info = env.step(action)
        assert not info["success"][terminated & ~lost].any()
        lost |= terminated
        if bool(lost.all()):
            break
    assert lost.all()


@pytest.mark.long
def test_the_expert_rearranges() -> None:
    """At least 19 of 20, the 95 % that demonstrations need."""
    env: Any = make_env("mobile/rearrange", 20)
    expert, steps = make_expert("mobile/rearrange", env=env), torch.zeros(20, dtype=torch.long)
    obs, solved, over = env.reset(EpisodeSeeds("expert")), torch.zeros(20).bool(), torch.zeros(20).bool()
    while not bool(over.all()):
        obs, _, _, _, info = env.step(expert.act(obs, steps, steps))
        solved |= info["final_mask"] & info["success"] & ~over
        over |= info["final_mask"]
    assert int(solved.sum()) >= 19


@pytest.mark.slow
@pytest.mark.pybullet
def test_the_expert_rearranges_in_pybullet() -> None:
    with closing(make_task_env("rearrange", 4, engine="pybullet")) as env:
        env.reset(EpisodeSeeds("expert"))
        solved, over = torch.zeros(4).bool(), torch.zeros(4).bool()
        while not bool(over.all()):
            info = env.step(env.from_script(env.script()).float())[4]
            solved |= info["final_mask"] & info["success"] & ~over
            over |= info["final_mask"]
        assert solved.all()


def test_dense_rewards_are_between_nothing_and_one() -> None:
    env = make_task_env("rearrange", 4, reward="dense")
    env.reset(EpisodeSeeds("dense"))
    rewards = torch.stack([env.step(env.from_script(env.script()).float())[1] for _ in range(20)])
    assert 0.0 <= float(rewards.min()) < float(rewards.max()) <= 1.0
    assert sum(RearrangeTask().weights.values()) == pytest.approx(1.0)
