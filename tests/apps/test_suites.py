"""Several tasks in one environment: collected in equal shares, learned by one policy, measured one by one."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from policies.vla.config import VlaConfig
from robo_rl.apps import collect, evaluate, train
from robo_rl.apps.cli.main import main as cli
from robo_rl.apps.training.train_data import TrainData
from robo_rl.conf.schema import EvaluateConfig
from robo_rl.conf.train import StartedImageConfig, TrainConfig
from robo_rl.core.errors import ConfigError, UnknownNameError
from robo_rl.core.spec import target_of
from robo_rl.core.text.instruction import INSTRUCTION, to_text
from robo_rl.data.store import EpisodeStore
from robo_rl.eval.rollout import eval_seeds
from robo_rl.eval.tasks import balanced_seeds
from sim.adapters.metaworld_instructions import TRAINING, WORDINGS
from sim.adapters.metaworld_words import CAMERAS, SharedRenderer
from sim.registry import make_env, task_in
from tests.apps.conftest import ENV, collect_config, train_config

PAIR = "metaworld/faucet-open-v3+faucet-close-v3"
VLA_RUN = {"steps": 4, "batch_size": 4, "checkpoint_every": 2, "learn_from": "all"}
NAMES = ["faucet-open-v3", "faucet-close-v3"]


@pytest.fixture(autouse=True)
def black_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures without OpenGL, which takes longer than the rest."""
    black = np.zeros((64, 64, 3), np.uint8)
    monkeypatch.setattr(SharedRenderer, "__init__", lambda self, *args: None)
    monkeypatch.setattr(SharedRenderer, "shots", lambda self, simulation: dict.fromkeys(CAMERAS, black))


def pair_data(folder: Path) -> Path:
    short = {"env": PAIR, "max_episode_steps": 5, "keep": "all", "num_envs": 2}
    assert collect.main(collect_config(folder, episodes=2, **short)) == 0
    assert collect.main(collect_config(folder, episodes=4, **short)) == 0  # continues
    return folder


def test_a_collection_gives_every_task_its_share_and_its_words(tmp_path: Path) -> None:
    """Also when it is continued. What only the script reads is not stored; the places to act are."""
    store = EpisodeStore(pair_data(tmp_path / "data"))
    tasks = [episode.meta.info["env_task"] for episode in store]
    assert sorted(tasks) == sorted(NAMES * 2)
    assert set(store.spec.obs) == {"state", *CAMERAS, *map(target_of, CAMERAS), INSTRUCTION}
    for episode, task in zip(store, tasks, strict=True):
        told = {to_text(row) for row in episode.obs(INSTRUCTION)}
        assert told == {episode.meta.task}
        assert episode.meta.task in WORDINGS[task][:TRAINING]
    found = TrainData.select(str(store.path), "all").wordings()
    assert set(found) == {episode.meta.task for episode in store}
    for episode, task in zip(store, tasks, strict=True):  # those of its task that the data have
        assert set(found[episode.meta.task]) == set(found) & set(WORDINGS[task])


def test_tasks_to_record_can_be_named(tmp_path: Path) -> None:
    """More episodes of one task alone, as many as are missing; others, and names of one task, are refused."""
    folder = pair_data(tmp_path / "data")
    short: dict[str, Any] = {"env": PAIR, "max_episode_steps": 5, "keep": "all", "num_envs": 2}
    assert collect.main(collect_config(folder, episodes=7, tasks=[NAMES[1]], **short)) == 0
    store = EpisodeStore(folder)
    tasks = [episode.meta.info["env_task"] for episode in store]
    assert len(tasks) == 7
    assert tasks[4:] == [NAMES[1]] * 3
    assert len({episode.meta.seed for episode in store}) == 7
    with pytest.raises(UnknownNameError, match="Did you mean 'faucet-open-v3'"):
        collect.main(collect_config(folder, tasks=["faucet-opne-v3"], **short))
    with pytest.raises(ConfigError, match="is one task"):
        collect.main(collect_config(tmp_path / "one", tasks=["reach-v3"], env="metaworld/reach-v3"))


def test_evaluation_seeds_have_equal_shares_in_their_own_order() -> None:
    """A subset of the usual seeds of an evaluation, so longer evaluations contain shorter ones' seeds."""

    def task_of(seed: int) -> int:
        return task_in(PAIR, seed)

    seeds = balanced_seeds(3, 9, [0, 1], task_of)
    assert sorted(map(task_of, seeds)) == [0] * 5 + [1] * 4
    usual = eval_seeds(3, 60)
    assert [usual.index(seed) for seed in seeds] == sorted(usual.index(seed) for seed in seeds)
    assert {task_of(seed) for seed in balanced_seeds(3, 4, [1], task_of)} == {1}


@pytest.mark.slow
def test_one_policy_learns_both_tasks_and_is_measured_in_each(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """collect, train, resume, evaluate with other words and other wordings; a flow policy reads no words."""
    pytest.importorskip("transformers", reason="transformers is not installed: pip install 'robo-rl[vla]'")
    data = pair_data(tmp_path / "data")
    small = VlaConfig(width=16, layers=1, heads=2, kv_heads=1, draws=1)
    few = VLA_RUN | {"policy": small, "net": TrainConfig().net}
    assert train.main(train_config(data, tmp_path / "whole", **few)) == 0
    parts = tmp_path / "parts"
    assert train.main(train_config(data, parts, **few)) == 0
    for newest in ((parts / "policy"), max((parts / "checkpoints").iterdir())):
        shutil.rmtree(newest)  # as if it had been killed after its second update
    assert train.main(train_config(data, parts, **few, resume=True)) == 0
    weights = [(tmp_path / out / "policy" / "weights.safetensors").read_bytes() for out in ("whole", "parts")]
    assert weights[0] == weights[1]
    run = str(tmp_path / "whole")
    quick = {"episodes": 4, "num_envs": 2, "num_workers": 0, "max_episode_steps": 4, "device": "cpu"}
    for changes in ({}, {"instruction": "turn the tap on"}, {"wordings": "new"}, {"tasks": NAMES[1:]}):
        result = evaluate.run_evaluation(EvaluateConfig(run, **quick | changes))  # type: ignore[arg-type]
        assert [rate.n for rate in result.by_task.values()] == ([4] if "tasks" in changes else [2, 2])
    assert cli(["evaluate", f"policy={run}", "instruction=", *(f"{k}={v}" for k, v in quick.items())]) == 2
    assert "instruction= is empty" in capsys.readouterr().err
    for text, reason in (("x" * 10_000, "10000 bytes"), ("a\tb", "control character")):
        with pytest.raises(ConfigError, match=reason):
            evaluate.run_evaluation(EvaluateConfig(run, instruction=text))
    with pytest.raises(UnknownNameError, match="task of metaworld/faucet-open-v3"):
        evaluate.run_evaluation(EvaluateConfig(run, tasks=["faucet-opne-v3"]))
    with pytest.raises(ConfigError, match="one task"):
        evaluate.run_evaluation(EvaluateConfig(run, env="metaworld/reach-v3", tasks=["reach-v3"]))
    with pytest.raises(ConfigError, match="fewer than the 2 tasks"):
        evaluate.run_evaluation(EvaluateConfig(run, episodes=1))


def test_a_film_shows_the_wordings_that_are_measured(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The environment of the film is made with the options of the measured one."""
    made: list[dict[str, Any]] = []

    def spy(name: str, *args: Any, **options: Any) -> Any:
        made.append(options)
        return make_env(ENV, *args, max_episode_steps=options["max_episode_steps"])

    monkeypatch.setattr(evaluate, "make_env", spy)
    monkeypatch.setattr(evaluate, "check_tasks", lambda config, name: None)
    film = {"episodes": 1, "num_workers": 0, "max_episode_steps": 4, "video": str(tmp_path / "film.mp4")}
    evaluate.run_evaluation(EvaluateConfig(str(run), wordings="new", **film))  # type: ignore[arg-type]
    assert made == [{"max_episode_steps": 4, "wordings": "new"}] * 2


def test_settings_of_generative_policies_are_refused_with_a_vla(tmp_path: Path) -> None:
    """They would have no effect."""
    data = pair_data(tmp_path / "data")
    with pytest.raises(ConfigError, match="net= is a setting of policy=generative"):
        train.main(train_config(data, tmp_path / "run", policy=VlaConfig(), learn_from="all"))
    with pytest.raises(ConfigError, match="obs_steps=2"):
        train.main(train_config(data, tmp_path / "run", policy=VlaConfig(), obs_steps=2, learn_from="all"))


def test_a_flow_policy_leaves_the_words_out(tmp_path: Path) -> None:
    """It learns from the same data by pictures and state, and says nothing about words in its contract."""
    from policies.checkpoint import load_policy

    data = pair_data(tmp_path / "data")
    image = StartedImageConfig(widths=[4, 4], features=4, keypoints=4)
    train.main(train_config(data, tmp_path / "run", image=image, steps=2, batch_size=4, learn_from="all"))
    policy = load_policy(tmp_path / "run" / "policy")
    assert set(policy.obs_spec) == {"state", *CAMERAS}
