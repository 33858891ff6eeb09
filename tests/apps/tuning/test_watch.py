"""Warnings of a training that cannot learn, and advice at its end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from robo_rl.apps.cli.main import main as robo_rl
from robo_rl.apps.tuning.watch import TrainingWatch
from robo_rl.core.errors import EnvError
from robo_rl.rl.running import CollectedEpisode


def ended(
    count: int, *, success: bool = False, steps: int = 50, reward: float = 0.0
) -> list[CollectedEpisode]:
    """Episodes that ended alike."""
    return [CollectedEpisode(seed, success, steps, reward) for seed in range(count)]


def test_each_warning_is_given_once() -> None:
    """The base's failures are reported at the end of its phase, a missing reward after 100 episodes."""
    said = list[str]()
    watch = TrainingWatch(has_base=True, demos=True, sparse=True, limit_steps=100, say=said.append)
    watch.add(ended(60), of_base=True, base_done=False, progress=0.1)
    assert not said
    for _ in range(3):
        watch.add(ended(20), of_base=False, base_done=True, progress=0.5)
    assert len(said) == 1
    assert said[0].startswith("The base has not succeeded in any of its 60 training episodes")


def test_warnings_given_before_a_stop_are_not_repeated() -> None:
    """Also where an earlier checkout wrote the checkpoint, under another name."""
    first = TrainingWatch(has_base=True, demos=True, sparse=True, limit_steps=100)
    first.add(ended(60), of_base=True, base_done=True, progress=0.1)
    state = first.state_dict()
    for kept in (state, {"history": state["history"], "told": state["reported"]}):
        said = list[str]()
        watch = TrainingWatch(has_base=True, demos=True, sparse=True, limit_steps=100, say=said.append)
        watch.load_state_dict(kept)
        watch.add(ended(20), of_base=False, base_done=True, progress=0.5)
        assert not said


def test_a_base_that_is_slow_is_told_of_shorter_episodes() -> None:
    """Evaluations may give it the time that training episodes do not."""
    said = list[str]()
    watch = TrainingWatch(has_base=True, demos=True, sparse=True, limit_steps=None, say=said.append)
    watch.add(ended(60), of_base=True, base_done=True, progress=0.1)
    assert "60 training episodes (which method.episode_limit_factor ends sooner than" in said[0]


def test_a_training_without_any_reward_is_reported() -> None:
    """Without a base, 100 episodes without success and reward say that the reward is always 0."""
    said = list[str]()
    watch = TrainingWatch(has_base=False, demos=False, sparse=False, limit_steps=None, say=said.append)
    watch.add(ended(99), of_base=False, base_done=True, progress=0.1)
    assert not said
    watch.add(ended(1), of_base=False, base_done=True, progress=0.2)
    assert said == [
        "No success and no reward was seen in 100 training episodes. To do: check the environment's success, "
        "or first train a base on demonstrations (robo-rl train)."
    ]


def test_a_task_that_ends_at_once_is_refused() -> None:
    """Ten episodes that succeed in their first step leave nothing to learn."""
    watch = TrainingWatch(has_base=True, demos=True, sparse=True, limit_steps=100)
    watch.add(ended(9, success=True, steps=1), of_base=True, base_done=False, progress=0.0)
    with pytest.raises(EnvError, match="all 10 episodes succeed in their first step"):
        watch.add(ended(1, success=True, steps=1), of_base=True, base_done=False, progress=0.0)


def test_counts_survive_a_checkpoint() -> None:
    """A resumed run does not warn again."""
    said = list[str]()
    watch = TrainingWatch(has_base=True, demos=True, sparse=True, limit_steps=100, say=said.append)
    watch.add(ended(20), of_base=True, base_done=True, progress=0.1)
    again = TrainingWatch(has_base=True, demos=True, sparse=True, limit_steps=None, say=said.append)
    again.load_state_dict(json.loads(json.dumps(watch.state_dict())))
    again.add(ended(20), of_base=False, base_done=True, progress=0.2)
    assert len(said) == 1
    assert again.history.all.episodes == 40
    assert again.history.limit_steps == 100


def test_a_run_without_a_success_says_so_and_is_done(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Four steps reach nothing: the advice says so, the policy is kept, and the exit code is 0."""
    out = tmp_path / "run"
    few = ["eval_every=0", "eval_episodes=2", "final_episodes=2", "num_envs=8", "num_workers=0"]
    small = ["env_steps=420", "max_episode_steps=4", "method.base_steps=80", "method.learner.hidden=[8]"]
    assert (
        robo_rl(["finetune", "method=sac", "env=arm/reach", "reward=sparse", f"out={out}", *small, *few]) == 0
    )
    said = capsys.readouterr()
    result = json.loads((out / "results.json").read_text())
    assert result["advice"].startswith("No success and no reward was seen in ")
    assert f"Advice: {result['advice']}" in said.out
    assert (out / "policy/policy.json").exists()
