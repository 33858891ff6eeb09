from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
import torch

from robo_rl.core.errors import CheckpointError, EnvError
from robo_rl.core.seeding import EpisodeSeeds
from sim.registry import make_env
from sim.vec.workers import WorkerVecEnv
from tests.sim.vec.lanes import make

STEPS, HALF = 14, 6


def unit_actions(env: WorkerVecEnv) -> Iterator[torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    while True:
        yield env.spec.action.denormalize(
            torch.rand((env.num_envs, env.spec.action.dim), generator=generator) * 2 - 1
        )


def life(env: WorkerVecEnv, first: int, last: int) -> list[Any]:
    """Results of steps first ... last - 1 of a fixed sequence of actions."""
    return [env.step(action) for i, action in zip(range(last), unit_actions(env), strict=False) if i >= first]


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("metaworld/pick-place-v3", {"reward": "dense", "max_episode_steps": 5}),
        ("pusht/state", {"max_episode_steps": 5}),
        ("gym/Walker2d-v5", {"max_episode_steps": 5}),
    ],
)
def test_restore_in_other_processes_is_bit_identical(name: str, options: dict[str, Any]) -> None:
    """Exact resume: a snapshot of two workers is restored into a new environment without workers, within an
    episode.
    """
    with make_env(name, 3, num_workers=2, **options) as env:
        env.reset(EpisodeSeeds(("resume", 0)))
        life(env, 0, HALF)
        snapshot = env.snapshot()
        expected = life(env, HALF, STEPS)
    other = make_env(name, 3, **options)
    other.restore(snapshot)
    torch.testing.assert_close(life(other, HALF, STEPS), expected, rtol=0.0, atol=0.0)


def test_a_snapshot_is_tensors_numbers_and_strings() -> None:
    """It is saved as safetensors and JSON, without pickle."""
    env = WorkerVecEnv(make(), 2)
    env.reset(EpisodeSeeds(("train", 1)))
    env.step(torch.zeros(2, 1))
    snapshot = env.snapshot()
    assert snapshot["seeds_root"] == ["train", 1]
    assert snapshot["seeds_count"] == 2
    assert snapshot["length"].tolist() == [1, 1]
    assert all(isinstance(value, torch.Tensor | int | str | list) for value in snapshot.values())


def test_the_success_latch_is_restored() -> None:
    """Solved before the snapshot, no longer at it: only the replay of actions restores that."""
    env = WorkerVecEnv(make(goal=10.0), 1)
    env.reset(count())
    env.step(torch.ones(1, 1))
    env.step(-torch.ones(1, 1))
    snapshot = env.snapshot()
    env.reset(count(50))
    env.restore(snapshot, seeds=count(1))
    assert env.step(torch.zeros(1, 1))[4]["success"].item()


def test_plain_iterators_are_positioned_by_the_caller() -> None:
    """Only `EpisodeSeeds` can be saved; any other iterator must be passed again at its position."""
    env = WorkerVecEnv(make(limit=2), 2)
    env.reset(count())
    env.step(torch.zeros(2, 1))
    snapshot = env.snapshot()
    assert snapshot["seeds_count"] is None
    fresh = WorkerVecEnv(make(limit=2), 2)
    fresh.restore(snapshot, seeds=count(2))
    assert fresh.step(torch.zeros(2, 1))[0]["state"][:, 0].tolist() == [2, 3]


def test_step_after_restore_without_seeds_is_refused() -> None:
    """The first end would otherwise fail with an error about None."""
    env = WorkerVecEnv(make(limit=1), 1)
    env.reset(count())
    fresh = WorkerVecEnv(make(limit=1), 1)
    fresh.restore(env.snapshot())
    with pytest.raises(EnvError, match=r"restore\(snapshot, seeds\)"):
        fresh.step(torch.zeros(1, 1))


def test_an_interrupted_step_can_be_snapshot_and_left() -> None:
    """Ctrl-C during a step: the snapshot is of the instant before it, and restore repairs the environment."""
    env = WorkerVecEnv(make(limit=2), 2)
    env.reset(EpisodeSeeds("seeds"))
    expected_obs = env.step(torch.zeros(2, 1))[0]
    env._lanes.wait = interrupt  # type: ignore[assignment, method-assign]
    with pytest.raises(KeyboardInterrupt):
        env.step(torch.ones(2, 1))
    del env._lanes.wait
    with pytest.raises(EnvError, match="interrupted"):
        env.step(torch.zeros(2, 1))
    snapshot = env.snapshot()
    torch.testing.assert_close(env.restore(snapshot), expected_obs)
    assert env.seeds is not None
    assert env.seeds.count == snapshot["seeds_count"] == 2  # type: ignore[attr-defined]


def interrupt(*_: Any) -> None:
    raise KeyboardInterrupt


def test_foreign_snapshots_are_refused() -> None:
    """Another task, number of lanes or horizon: one sentence, and the environment stays as it was."""
    env = WorkerVecEnv(make(), 2)
    env.reset(count())
    env.step(torch.zeros(2, 1))
    snapshot = env.snapshot()
    with pytest.raises(CheckpointError, match=r"2 parallel environments.*3 parallel environments"):
        WorkerVecEnv(make(), 3).restore(snapshot)
    with pytest.raises(CheckpointError, match="options"):
        WorkerVecEnv(make(limit=1), 2).restore(snapshot)
    env.step(torch.zeros(2, 1))


def test_a_simulator_that_ends_during_the_replay_is_refused() -> None:
    """Another simulator version would not continue the same run."""
    env = WorkerVecEnv(make(goal=9.0), 1)
    env.reset(count())
    for _ in range(3):
        env.step(torch.ones(1, 1))
    with pytest.raises(EnvError, match="ended after 2 of the 3"):
        WorkerVecEnv(make(goal=2.0), 1).restore(env.snapshot(), count())
