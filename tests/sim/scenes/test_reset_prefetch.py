"""Starts drawn before their episodes begin: equal starts, by fewer draws, and no seed used early."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from robo_rl.core.seeding import EpisodeSeeds
from sim.scenes.reset_prefetch import AHEAD
from sim.scenes.task_env import TaskVecEnv, make_task_env
from sim.tasks.table import all_tasks

LANES, STEPS = 3, 12


def short(task: str = "lift") -> TaskVecEnv:
    """Episodes of two steps."""
    return make_task_env(task, LANES, max_episode_steps=2)


def played(env: TaskVecEnv, seeds: Any) -> list[torch.Tensor]:
    told = [env.reset(seeds)["state"]]
    action = torch.full((LANES, env.spec.action.dim), 0.1)
    for _ in range(STEPS):
        obs, _, _, _, info = env.step(action)
        told += [obs["state"], info["episode_seed"]]
    env.close()
    return told


@pytest.mark.parametrize("task", [*all_tasks()])
def test_prefetched_resets_change_no_episode(task: str) -> None:
    """The next seeds of a plain iterator are unknown: every start is drawn when its episode begins."""
    ahead = played(short(task), EpisodeSeeds("ahead"))
    plain = played(short(task), (seed for seed in EpisodeSeeds("ahead")))
    assert all(a.equal(b) for a, b in zip(ahead, plain, strict=True))


def test_many_episodes_are_drawn_at_once_and_no_seed_is_taken_early(monkeypatch: pytest.MonkeyPatch) -> None:
    env, seeds, drawn = short(), EpisodeSeeds("ahead"), []
    draw = env._drive.start
    monkeypatch.setattr(env._drive, "start", lambda uniform: (drawn.append(len(uniform)), draw(uniform))[1])
    played(env, seeds)
    assert seeds.count == LANES * (1 + STEPS // 2)
    assert drawn == [LANES + AHEAD]


@pytest.mark.parametrize(
    ("task", "options"),
    [
        *((task, {}) for task in all_tasks()),
        ("peg_insert", {"randomise": "wide"}),
        pytest.param("peg_insert", {"engine": "pybullet"}, marks=pytest.mark.pybullet),
        pytest.param("rearrange", {"engine": "pybullet"}, marks=pytest.mark.pybullet),
    ],
)
def test_start_geometry_matches_the_engine(task: str, options: dict[str, str]) -> None:
    """Checked by geometry before the engine, independent of mass, friction and servos."""
    env = make_task_env(task, LANES, max_episode_steps=2, **options)
    told = env.reset(EpisodeSeeds("ahead"))
    for _ in range(2):
        seen = env.task.observe(env.view).float()
        noise = 0.0 if env._senses._spread is None else 5.0 * env._senses._spread
        assert ((told["state"] - seen).abs() <= noise + 1e-6).all()
        env.step(torch.zeros(LANES, env.spec.action.dim))
        told, *_, info = env.step(torch.zeros(LANES, env.spec.action.dim))
        assert info["final_mask"].all()
    env.close()
