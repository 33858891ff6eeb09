"""The loop of a fine-tuning: limits of its episodes, what counts as its time, and how it ends."""

from __future__ import annotations

import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from policies.tuned.steered import SteeredPolicy
from robo_rl.apps.tuning.check import too_often
from robo_rl.apps.tuning.loop import Best, _Training
from robo_rl.apps.tuning.report import steps_in_words
from robo_rl.apps.tuning.start import engine_device, training_episode_limit, with_planning_interval
from robo_rl.apps.tuning.watch import TrainingWatch
from robo_rl.conf.finetune import FinetuneVerb
from robo_rl.core.action_map import LatentMap
from robo_rl.core.errors import ConfigError
from robo_rl.core.text.instruction import TASK_NOTE
from robo_rl.data.store import DatasetWriter, EpisodeStore
from robo_rl.nets.actor import ActorConfig, make_actor
from robo_rl.rl.loop import FinetuneConfig
from tests.policies.small import flow_policy
from tests.rl.worlds import SPEC

pytest.importorskip("metaworld", reason="needs MetaWorld: pip install 'robo-rl[sim]'")


def test_training_episodes_end_after_a_multiple_of_the_demonstrations(base: tuple[Path, Path]) -> None:
    """1.6 times the median demonstration, rounded up, at most the task's own limit; none without
    demonstrations.
    """
    config = FinetuneVerb(out="unused", base=str(base[1]), demos=str(base[0]))
    demos = EpisodeStore(base[0])
    middle = sorted(episode.frames for episode in demos)[1]
    method = replace(config.method, episode_limit_factor=1.6)
    assert training_episode_limit(config, method, demos) == math.ceil(1.6 * middle)
    assert training_episode_limit(config, replace(method, episode_limit_factor=100.0), demos) == 200
    assert training_episode_limit(config, method, None) is None
    config.max_episode_steps = 7
    assert training_episode_limit(config, method, demos) == 7


def test_the_slowest_task_sets_the_limit_of_training_episodes(
    base: tuple[Path, Path], tmp_path: Path
) -> None:
    """Medians 4 and 10: a limit of the median of all, 5, would end every episode of the second task."""
    demos = EpisodeStore(base[0])
    writer = DatasetWriter.create(tmp_path / "data", demos.spec)
    obs = {key: next(iter(demos)).obs(key)[0] for key in demos.spec.obs}
    for task, frames in (("quick", 4), ("quick", 4), ("quick", 5), ("slow", 9), ("slow", 11)):
        with writer.episode(info={TASK_NOTE: task}) as episode:
            for _ in range(frames):
                episode.add(obs, np.zeros(4, np.float32))
            episode.commit(success=True)
    config = FinetuneVerb(out="unused", base=str(base[1]))
    method = replace(config.method, episode_limit_factor=1.5)
    assert training_episode_limit(config, method, EpisodeStore(tmp_path / "data")) == 15


def test_execute_can_differ_from_that_of_the_base() -> None:
    """Same weights, other `execute`; the base keeps its own, and a chunk is never exceeded."""
    base = flow_policy(SPEC)
    again = with_planning_interval(base, 1)
    assert (again.execute, base.execute) == (1, 2)
    assert all(one is other for one, other in zip(again.parameters(), base.parameters(), strict=True))
    with pytest.raises(ConfigError, match="chunks of 4"):
        with_planning_interval(base, 5)
    steered = SteeredPolicy(base, make_actor(ActorConfig("gaussian", 4, 4)), LatentMap(4, 1, 1.5))
    with pytest.raises(ConfigError, match=r"method\.execute=null"):
        with_planning_interval(steered, 1)


def watch() -> TrainingWatch:
    """A watch on a training without a base."""
    return TrainingWatch(has_base=False, demos=False, sparse=True, limit_steps=None)


class _Working:
    """A tuner whose only step runs in another process."""

    phase, env_steps, offline, burned_in, done = "burn_in", 0, 0, 0, False
    config = FinetuneConfig(100)

    def advance(self) -> list[Any]:
        busy = "import time\nwhile time.process_time() < 0.5: pass"
        subprocess.run([sys.executable, "-S", "-c", busy], check=True)
        return []

    def state_dict(self) -> dict[str, Any]:
        return {}


def test_cpu_seconds_include_the_workers() -> None:
    """With num_workers= the simulation runs in other processes, whose time counts as training."""
    config = FinetuneVerb(out="unused", eval_every=0)
    session: Any = SimpleNamespace(tuner=_Working(), seed_root=("train", 0))
    nothing: Any = None
    lanes: Any = SimpleNamespace(state_dict=dict, learn=lambda episodes: None)
    training = _Training(config, session, lanes, nothing, nothing, watch(), print, config.method)
    training.best = Best(0, (0.0, 0.0), {})  # evaluated already
    training.advance()
    assert training.state_dict()["progress"]["train_cpu_s"] >= 0.45


def test_frequent_evaluations_of_many_environments_are_pointed_out() -> None:
    """By default both come every 2,000 steps, less than one step of 4,096 environments."""
    said = too_often(FinetuneVerb(out="unused", num_envs=4096))
    assert said.endswith("Better: eval_every=2048000 checkpoint_every=2048000")
    assert not too_often(FinetuneVerb(out="unused", num_envs=64))
    assert not too_often(FinetuneVerb(out="unused", num_envs=4096, eval_every=0, checkpoint_every=10_000_000))


def test_training_ends_with_its_wall_time() -> None:
    """With max_wall_s=0 the first step is the last one, and it is evaluated."""
    config, said = FinetuneVerb(out="unused", eval_every=0, max_wall_s=0.0), list[str]()
    tuner: Any = SimpleNamespace(
        phase="online",
        env_steps=0,
        offline=0,
        burned_in=0,
        done=False,
        advance=list,
        config=FinetuneConfig(100),
    )
    session: Any = SimpleNamespace(tuner=tuner, seed_root=("train", 0))
    nothing: Any = None
    lanes: Any = SimpleNamespace(learn=lambda episodes: None)
    training = _Training(config, session, lanes, nothing, nothing, watch(), said.append, config.method)
    training.best = Best(0, (0.0, 0.0), {})
    training.curve.env_steps.append(tuner.env_steps)
    assert not training.done
    training.advance()
    assert training.done
    assert said == ["max_wall_s: training ends after 0 of 100 steps"]


@pytest.mark.parametrize(
    ("has_base", "words"),
    [
        (True, "600 steps (200 of the base alone, 400 of learning)"),
        (False, "600 steps (200 before learning, 400 of learning)"),
    ],
)
def test_steps_of_a_run_from_scratch_name_no_base(has_base: bool, words: str) -> None:
    outcome: Any = SimpleNamespace(env_steps=600, steps={"base": 200, "training": 400, "selection": 0})
    assert steps_in_words(outcome, has_base) == words


@pytest.mark.parametrize(
    ("name", "device", "chosen"),
    [
        ("arm/lift:engine=mjwarp", "cuda:1", {"device": "cuda:1"}),
        ("arm/lift:engine=mjwarp", "cpu", {}),  # Warp's CPU device is for tests
        ("arm/lift:engine=mjwarp", "auto", {}),
        ("arm/lift:engine=mjwarp,device=cuda:0", "cuda:1", {}),
        ("arm/lift", "cuda:1", {}),
        ("gym/Pendulum-v1", "cuda", {}),
    ],
)
def test_simulator_on_a_gpu_is_on_that_of_the_run(name: str, device: str, chosen: dict[str, str]) -> None:
    """Otherwise its results would be copied through the host at every step."""
    assert engine_device(name, device) == chosen
