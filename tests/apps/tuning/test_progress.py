"""A run with a reward for progress: its model, its stores, and what it refuses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from robo_rl.apps.tuning.compose import build_session
from robo_rl.apps.tuning.rewards.progress import check_progress, gripper_index, progress_note, read_progress
from robo_rl.conf.finetune import MethodConfig
from robo_rl.core.errors import ConfigError
from robo_rl.data.replay import Replay
from robo_rl.data.store import EpisodeStore
from robo_rl.rl.collect import Collector
from robo_rl.rl.loop import FineTuner
from robo_rl.rl.on_policy.groups import GroupConfig
from robo_rl.rl.on_policy.tuner import PpoTuner
from robo_rl.rl.progress import model as progress_model
from robo_rl.rl.progress.model import ProgressModel
from robo_rl.runs.run_dir import PROGRESS
from tests.apps.tuning.small_methods import DEMOS, METHODS, base_of, begin, dataset, method
from tests.rl.worlds import SPEC, make_env

WEIGHT = 0.5


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model of a few updates: it has to be some model, not a good one."""
    monkeypatch.setattr(progress_model.fit_progress, "__defaults__", (20,))


@pytest.fixture(scope="module")
def demos(tmp_path_factory: pytest.TempPathFactory) -> EpisodeStore:
    """Two successes and a failure of the toy world."""
    return dataset(tmp_path_factory.mktemp("progress"), SPEC, [True, False, True])


def advanced(config: MethodConfig, demos: EpisodeStore, run: Path | None = None, steps: int = 12) -> Any:
    """The tuner after some steps of the base, or of its first rollout."""
    env = make_env(3)
    made = build_session(config, base_of(config), env, seed=0, demos=demos, say=lambda _: None, run=run)
    begin(made, env)
    for _ in range(steps):
        made.tuner.advance()
    env.close()
    return made.tuner


def rewards(replay: Replay, model: ProgressModel | None, gamma: float, fails: bool) -> list[Tensor]:
    """Rewards of each lane, with the shaping of this model."""
    found = []
    for index in range(replay.lanes):
        data = {name: value[index, : int(replay.head[index])] for name, value in replay.data.items()}
        reward = data["reward"]
        if model is not None:
            over = data["terminated"] | (data["truncated"] & fails)
            after = gamma ** data["steps"] * model(data["next_obs"]).masked_fill(over, 0.0)
            reward = reward + WEIGHT * (after - model(data["obs"]))
        found.append(reward)
    return found


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("kind", ["ResFiT", "residual of chunks", "DSRL-SAC"])
def test_online_and_demonstrated_rewards_are_shaped_by_the_model_of_the_run(
    kind: str, fails: bool, demos: EpisodeStore, tmp_path: Path
) -> None:
    """Stored rewards in every lane equal those of a run without the weight, plus the shaping."""
    plain = replace(METHODS[kind], learner=replace(METHODS[kind].learner, timeout_is_failure=fails))
    stores = advanced(plain, demos).mix.stores
    shaped = advanced(replace(plain, progress_weight=WEIGHT), demos, tmp_path).mix.stores
    model, report = read_progress(tmp_path / PROGRESS)
    assert (report.episodes, report.members) == (2, 2)
    assert stores.keys() == shaped.keys()
    for name, replay in stores.items():
        expected = rewards(replay, model, plain.learner.gamma, fails)
        for one, other in zip(rewards(shaped[name], None, 0.0, fails), expected, strict=True):
            torch.testing.assert_close(one, other)


def test_rollouts_of_ppo_are_shaped(demos: EpisodeStore, tmp_path: Path) -> None:
    """Of chunks inside the denoising, which are never replayed: demonstrations teach progress alone."""
    plain = METHODS["DPPO"]
    tuners = [
        advanced(config, demos, tmp_path, steps=7)
        for config in (plain, replace(plain, progress_weight=WEIGHT))
    ]
    model, _ = read_progress(tmp_path / PROGRESS)
    assert all(isinstance(tuner, PpoTuner) for tuner in tuners)
    one, other = (tuner.rollout.data for tuner in tuners)
    stored = torch.arange(one["reward"].shape[1]) < tuners[0].rollout.count.unsqueeze(1)
    after = one["discount"] * model(one["next_obs"].flatten(0, 1)).view(one["reward"].shape)
    now = model(one["obs"].flatten(0, 1)).view(one["reward"].shape)
    expected = one["reward"] + WEIGHT * (after.masked_fill(one["terminated"], 0.0) - now)
    torch.testing.assert_close(other["reward"][stored], expected[stored])
    assert stored.sum() >= 6


def test_a_run_keeps_its_model_and_reads_it_again(demos: EpisodeStore, tmp_path: Path) -> None:
    """The second session learns nothing: it would have other weights with another seed."""
    config = method("residual", DEMOS, actor="deterministic")
    config.progress_weight = WEIGHT
    advanced(config, demos, tmp_path, steps=1)
    before = {path.name: path.read_bytes() for path in (tmp_path / PROGRESS).iterdir()}
    env = make_env(3)
    build_session(config, base_of(config), env, seed=5, demos=demos, say=lambda _: None, run=tmp_path)
    env.close()
    assert before == {path.name: path.read_bytes() for path in (tmp_path / PROGRESS).iterdir()}
    note = progress_note(tmp_path)[PROGRESS]
    assert 0.0 < note["held_out_error"] < 1.0
    assert note["episodes"] == 2


def test_without_the_weight_nothing_is_made(demos: EpisodeStore, tmp_path: Path) -> None:
    tuner = advanced(method("residual", DEMOS), demos, tmp_path, steps=1)
    assert isinstance(tuner, FineTuner)
    assert isinstance(tuner.collector, Collector)
    assert tuner.collector.writer.shaping is None
    assert list(tmp_path.iterdir()) == []
    assert progress_note(tmp_path) == {}


def test_what_cannot_be_shaped_is_refused(demos: EpisodeStore, tmp_path: Path) -> None:
    plain = replace(method("residual"), progress_weight=WEIGHT)
    cases: list[tuple[MethodConfig, bool, str]] = [
        (plain, False, "demos=<dataset>"),
        (replace(plain, encoder="learned"), True, "encoder=frozen"),
        (replace(plain, reward_source="interventions"), True, "reward_source=task"),
        (replace(plain, groups=GroupConfig(size=4)), True, "without discount"),
    ]
    for config, given, words in cases:
        with pytest.raises(ConfigError, match=words):
            check_progress(config, given)
    check_progress(replace(plain, progress_weight=0.0), False)
    with pytest.raises(ConfigError, match="counted from 0"):
        gripper_index(replace(plain, progress_gripper=1), demos)
    assert gripper_index(replace(plain, progress_gripper=0), demos) == 0
    assert gripper_index(plain, demos) is None
    one = dataset(tmp_path / "one", SPEC, [True, False])
    with pytest.raises(ConfigError, match="two successful demonstrations"):
        advanced(plain, one)
