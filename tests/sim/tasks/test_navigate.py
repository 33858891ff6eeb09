"""The mobile base's task under the contract: rooms, episodes, collisions, the expert, other engines."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest
import torch

from robo_rl.core.errors import ConfigError, UnknownNameError
from robo_rl.core.seeding import EpisodeSeeds
from sim.registry import list_envs, make_env, make_expert
from sim.scenes.task_env import make_task_env
from sim.tasks.mobile.navigate import SHAPES, NavigateTask
from sim.vec.conformance import check_vec_env


def test_contract() -> None:
    check_vec_env(
        make_env("mobile/navigate:randomise=mobile", 3, max_episode_steps=9, reward="dense"), steps=20
    )


def test_pictures_keep_the_contract() -> None:
    check_vec_env(make_env("mobile/navigate:cameras=view+top,image_size=32", 2, max_episode_steps=5), steps=8)


@pytest.mark.pybullet
def test_pybullet_keeps_the_contract() -> None:
    check_vec_env(make_env("mobile/navigate:engine=pybullet", 3, max_episode_steps=9), steps=20)


def test_the_expert_arrives_without_a_collision() -> None:
    """At least 38 of 40, the 95 % that demonstrations need."""
    env: Any = make_env("mobile/navigate", 40)
    expert, steps = make_expert("mobile/navigate", env=env), torch.zeros(40, dtype=torch.long)
    obs, solved, over = env.reset(EpisodeSeeds("expert")), torch.zeros(40).bool(), torch.zeros(40).bool()
    while not bool(over.all()):
        obs, _, _, _, info = env.step(expert.act(obs, steps, steps))
        solved |= info["final_mask"] & info["success"] & ~over
        over |= info["final_mask"]
    assert int(solved.sum()) >= 38


def test_a_collision_ends_the_episode_as_a_failure() -> None:
    """Straight ahead at full speed all collide: the episode fails before the base overlaps."""
    env = make_task_env("navigate", 16)
    env.reset(EpisodeSeeds("crash"))
    over = torch.zeros(16, dtype=torch.bool)
    for _ in range(200):
        _, reward, terminated, _, info = env.step(torch.tensor([[1.0, 0.0]]).expand(16, 2))
        first = terminated & ~over
        assert not info["success"][first].any()
        assert not reward[first].any()
        # the lidar looks ahead from 23.5 cm before the middle of a base of 28 cm: nothing may be deeper in
        # than 2 cm
        assert (info["final_obs"]["state"][first][:, :55].amin(1) > 0.025).all()
        over |= terminated
    assert over.all()


def test_rooms_always_have_a_way() -> None:
    """In 2,000 of them: 6 to 12 shapes, 75 cm between any two, and base and goal are free."""
    env = make_task_env("navigate", 1)
    wiring, task = env.wiring, NavigateTask()
    uniform = torch.rand(2000, task.numbers, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    pose, start, goal = task.start(uniform, wiring)
    places = start.fixture_m[:, [wiring.scene.fixture(name) for name in SHAPES], :2]
    sizes = [wiring.scene.model.geom(name).size[:2] for name in SHAPES]
    radius = torch.tensor(
        [float((s[0] ** 2 + s[1] ** 2) ** 0.5) if i < 6 else float(s[0]) for i, s in enumerate(sizes)]
    )
    stands = places.abs().amax(-1) < 3.5
    assert set(stands.sum(1).tolist()) == set(range(6, 13))
    gap = (places[:, :, None] - places[:, None]).norm(dim=-1) - radius[:, None] - radius
    gap[:, range(12), range(12)] = 9.0
    gap[~(stands[:, :, None] & stands[:, None])] = 9.0
    assert float(gap.min()) >= 0.75 - 1e-6
    for point in (pose[:, :2], goal):
        free = torch.where(stands, (places - point[:, None]).norm(dim=-1) - radius, 9.0).amin(1)
        assert float(free.min()) > 0.3
        assert float(point.abs().max()) < 3.5 - 0.3
    apart = (pose[:, :2] - goal).norm(dim=-1)
    assert float(apart.min()) > 1.0
    assert float(apart.median()) > 3.0


def test_the_goal_is_seen_from_the_base() -> None:
    """Two metres ahead of a base that looks along y is (2, 0)."""
    env = make_task_env("navigate", 4)
    env.reset(EpisodeSeeds("goal"))
    view = env.view
    c, s = view.yaw_rad.cos(), view.yaw_rad.sin()
    ahead = view.xy_m + 2.0 * torch.stack([c, s], -1) + 0.5 * torch.stack([-s, c], -1)
    torch.testing.assert_close(view.from_base(ahead), torch.tensor([[2.0, 0.5]] * 4).double())


def test_the_observation_is_laid_out_as_named() -> None:
    env = make_task_env("navigate", 4)
    env.reset(EpisodeSeeds("layout"))
    obs = env.step(torch.tensor([[0.3, 0.5]]).expand(4, 2))[0]["state"].double()
    view, aside = env.view, 0.5 * 4.0 * 54
    bearings = torch.deg2rad(torch.linspace(-aside, aside, 55, dtype=torch.float64))
    expected = torch.cat([view.lidar_m(bearings, 10.0), view.from_base(view.goal), view.twist], -1)
    torch.testing.assert_close(obs, expected, rtol=0, atol=1e-5)


def test_laser_noise() -> None:
    """The preset `mobile`: 2 cm, another number for every ray, episode and step, around what a clean one
    says.
    """
    env = make_task_env("navigate", 32, randomise="mobile", compiled=False)
    seen = env.reset(EpisodeSeeds("noise"))["state"][:, :55]
    clean = env.task.observe(env.view)[:, :55]
    assert float((seen - clean).std()) == pytest.approx(0.02, rel=0.1)
    assert abs(float((seen - clean).mean())) < 0.002


def test_dense_rewards_are_between_nothing_and_one() -> None:
    env = make_task_env("navigate", 8, reward="dense")
    env.reset(EpisodeSeeds("dense"))
    rewards = torch.stack([env.step(env.from_script(env.script()).float())[1] for _ in range(20)])
    assert 0.0 <= float(rewards.min()) < float(rewards.max()) <= 1.0


@pytest.mark.pybullet
def test_pybullet_drives_the_same_way() -> None:
    """The same commands from the same starts: within 2 cm after 2 s."""
    ends = []
    for engine in ("mujoco", "pybullet"):
        with closing(make_task_env("navigate", 2, engine=engine)) as env:
            env.reset(EpisodeSeeds("engines"))
            for _ in range(40):
                env.step(torch.tensor([[0.3, 0.8]]).expand(2, 2))
            ends.append(env.view.xy_m)
    assert float((ends[0] - ends[1]).norm(dim=-1).max()) < 0.02


@pytest.mark.slow
@pytest.mark.parametrize(("task", "steps"), [("navigate", 40), ("rearrange", 130)])
def test_mujoco_warp_drives_the_same_way(task: str, steps: int) -> None:
    """Under the expert, `rearrange` until the cube is lifted: within a tenth of a millimetre, with equal
    observations.
    """
    pytest.importorskip("mujoco_warp", reason="needs the extra [gpu]")
    ends, seen = [], []
    for engine, place in (("mujoco", {}), ("mjwarp", {"device": "cpu"})):
        with closing(make_task_env(task, 2, engine=engine, compiled=False, **place)) as env:
            env.reset(EpisodeSeeds("warp"))
            for _ in range(steps):
                obs = env.step(env.from_script(env.script()).float())[0]["state"]
            ends.append(env.view.xy_m.double())
            seen.append(obs)
    torch.testing.assert_close(ends[0], ends[1], rtol=0, atol=1e-4)
    torch.testing.assert_close(seen[0], seen[1], rtol=0, atol=1e-3)


@pytest.mark.parametrize(
    ("name", "error", "says"),
    [
        ("mobile/navigate:control=cartesian", UnknownNameError, "twist"),
        ("mobile/navigate:robot=panda", UnknownNameError, "freight"),
        ("mobile/navigate:clearance_mm=1", ConfigError, "mobile/navigate has no clearance_mm"),
        ("mobile/navgate", UnknownNameError, "mobile/navigate"),
        ("mobile/navigate:cameras=viw", UnknownNameError, "view"),
    ],
)
def test_mistakes_are_refused(name: str, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        make_env(name, 1)


def test_names_are_the_suites() -> None:
    assert "mobile/navigate" in list_envs()
    assert make_env("mobile/navigate:robot=freight,control=twist", 1).spec.name == "mobile/navigate"
