"""Recorded training episodes: observations, executed actions, and ends."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from robo_rl.core.errors import CheckpointError
from robo_rl.core.protocols import VecEnv
from robo_rl.core.seeding import EpisodeSeeds
from robo_rl.core.text.instruction import TASK_NOTE, to_text
from robo_rl.data.store import DatasetWriter, EpisodeStore
from sim.vec.conformance import check_vec_env
from sim.vec.intervention import Intervened, by_distance
from sim.vec.recorded import Recorded
from sim.vec.workers import WorkerVecEnv
from tests.policies.small_vla import SPEC as SIDES_SPEC
from tests.policies.small_vla import sides_env
from tests.rl.worlds import LIMIT, SPEC, TargetLane
from tests.sim.vec.lanes import CountLane
from tests.sim.vec.lanes import make as make_lane
from tests.sim.vec.test_intervention import Human, random_actions


def writer(path: Path) -> DatasetWriter:
    return DatasetWriter.create(path, SPEC, stamps=(), min_free_bytes=0, durable=False)


def sides_writer(path: Path) -> DatasetWriter:
    return DatasetWriter.create(path, SIDES_SPEC, stamps=(), min_free_bytes=0, durable=False)


def target(path: Path, *, keep_all: bool = True) -> Recorded:
    return Recorded(WorkerVecEnv(TargetLane, 3), writer(path), keep_all=keep_all)


def roll(env: VecEnv, actions: Tensor) -> None:
    for action in actions:
        env.step(action)


def contents(path: Path) -> list[tuple[object, ...]]:
    return [
        (e.number, e.meta.seed, e.success, e.obs("state").tolist(), e.action.tolist(), e.terminated.tolist())
        for e in EpisodeStore(path)
    ]


def test_it_is_a_vector_environment(tmp_path: Path) -> None:
    """Every clause of the contract, with and without recording."""
    check_vec_env(target(tmp_path / "set"))


def test_recorded_episode_equals_the_rollout(tmp_path: Path) -> None:
    """By hand: 0.75 per step (2 is commanded, the limit is 1, the second step has half of it) ends at a sum
    of 3.
    """
    spec = CountLane().spec
    dataset = DatasetWriter.create(tmp_path / "set", spec, stamps=(), min_free_bytes=0, durable=False)
    env = Recorded(WorkerVecEnv(make_lane(CountLane), 1), dataset, info={"by": "me"})
    env.reset(count(7))
    roll(env, torch.tensor([2.0, 0.5, 1.0, 1.0, -1.0]).view(5, 1, 1))
    (episode,) = EpisodeStore(tmp_path / "set")
    assert episode.action.ravel().tolist() == [1.0, 0.5, 1.0, 1.0]
    assert episode.obs("state").tolist() == [[7, 0, 0], [7, 1, 1], [7, 2, 1.5], [7, 3, 2.5], [7, 4, 3.5]]
    assert np.array_equal(episode.obs("image.front")[:, 0, 0, 0], [0, 1, 2, 3, 4])
    assert episode.reward.tolist() == [1.0, 1.5, 2.5, 3.5]
    assert episode.terminated.tolist() == [False, False, False, True]
    assert (episode.success, episode.meta.seed, episode.meta.info) == (True, 7, {"by": "me"})


def test_episodes_of_several_tasks_are_labelled(tmp_path: Path) -> None:
    """The instruction is the label and the task a note, by which training knows the wordings of a task."""
    env: Any = Recorded(sides_env(1), sides_writer(tmp_path / "set"), keep_all=True, tasks=("left", "right"))
    inner = env._env.step_wait
    env._env.step_wait = lambda: (*(out := inner())[:4], out[4] | {"task": torch.ones(1)})
    env.reset(count(7))
    roll(env, torch.ones(6, 1, 2))
    episode = next(iter(EpisodeStore(tmp_path / "set")))
    assert episode.meta.task == to_text(episode.obs("instruction")[0])
    assert episode.meta.info == {TASK_NOTE: "right"}


def test_failures_are_recorded_on_request(tmp_path: Path) -> None:
    """The same steps twice: all episodes, and those of them that succeeded."""
    for name, keep_all in (("all", True), ("success", False)):
        env = target(tmp_path / name, keep_all=keep_all)
        env.reset(EpisodeSeeds(("test", 0)))
        roll(env, random_actions(60))
        env.close()
    every, successes = (list(EpisodeStore(tmp_path / name)) for name in ("all", "success"))
    assert [e.meta.seed for e in successes] == [e.meta.seed for e in every if e.success]
    assert 0 < len(successes) < len(every)


def test_a_lack_of_reported_successes_is_said_once(tmp_path: Path) -> None:
    """Not by an environment that reports failures, nor where all episodes are kept."""
    said: list[str] = []
    for reports, keep_all in ((False, False), (True, False), (False, True)):
        folder = writer(tmp_path / f"{reports}{keep_all}")
        env: Any = Recorded(WorkerVecEnv(TargetLane, 3), folder, keep_all=keep_all, say=said.append)
        inner, known = env._env.step_wait, {"reports_success": torch.full((3,), reports)}
        env._env.step_wait = lambda step=inner, known=known: (*(out := step())[:4], out[4] | known)
        env.reset(EpisodeSeeds(("test", 0)))
        roll(env, random_actions(60))
        env.close()
        assert len(said) == 1
    assert "reports no success" in said[0]


def test_a_humans_actions_are_recorded_and_marked(tmp_path: Path) -> None:
    """During an intervention the policy's action was not executed. A snapshot keeps the marks."""
    inner = Intervened(WorkerVecEnv(TargetLane, 3), Human(), by_distance(0.5), error=0.0, steps=2)
    env = Recorded(inner, writer(tmp_path / "set"), keep_all=True)
    executed, human = [], []
    env.reset(EpisodeSeeds(("test", 0)))
    for step, action in enumerate(random_actions(12)):
        *_, info = env.step(action)
        executed.append(info["executed_action"][0])
        human.append(bool(info["intervened"][0]))
        if step == 1:
            env.restore(env.snapshot())
    first = next(e for e in EpisodeStore(tmp_path / "set") if e.meta.seed == next(EpisodeSeeds(("test", 0))))
    assert first.action.tolist() == torch.stack(executed)[: first.frames].tolist()
    assert float(np.abs(first.action).max()) == LIMIT
    assert first.intervention.tolist() == human[: first.frames]
    assert any(human)


def test_going_back_to_a_snapshot_records_the_same(tmp_path: Path) -> None:
    """Later episodes are removed and recorded again, running ones are complete, and an interrupted one is
    removed.
    """
    actions = random_actions(48)
    whole = target(tmp_path / "whole")
    whole.reset(EpisodeSeeds(("test", 0)))
    roll(whole, actions)

    seeds = EpisodeSeeds(("test", 0))
    env = target(tmp_path / "torn")
    env.reset(seeds)
    roll(env, actions[:20])
    snapshot, drawn = env.snapshot(), seeds.count
    roll(env, actions[20:40])  # what a killed run did after its checkpoint
    env.close()
    again = DatasetWriter.open(tmp_path / "torn", SPEC, min_free_bytes=0, durable=False)
    torn = again.episode(seed=1)
    torn.add({"state": np.zeros(2, np.float32)}, np.zeros(1, np.float32))
    torn.close()
    staged = [path for path in (tmp_path / "torn/staging").iterdir() if path.is_dir()]
    assert len(staged) == 1
    env = Recorded(WorkerVecEnv(TargetLane, 3), again, keep_all=True)
    env.restore(snapshot, EpisodeSeeds(("test", 0), drawn))
    assert not staged[0].exists()
    roll(env, actions[20:])
    assert contents(tmp_path / "torn") == contents(tmp_path / "whole")


def test_a_snapshot_without_recording_is_refused(tmp_path: Path) -> None:
    """A run without recordings cannot start recording: its running episodes would be incomplete."""
    plain = WorkerVecEnv(TargetLane, 3)
    plain.reset(EpisodeSeeds(("test", 0)))
    with pytest.raises(CheckpointError, match="recorded nothing"):
        target(tmp_path / "set").restore(plain.snapshot())
