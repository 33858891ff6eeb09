"""Several MetaWorld tasks in one environment, chosen by the episode's seed and told apart by words."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from robo_rl.core.errors import ConfigError, UnknownNameError
from robo_rl.core.seeding import EpisodeSeeds
from robo_rl.core.text.instruction import INSTRUCTION, to_bytes, to_text
from sim.adapters.metaworld_instructions import SUITES, TRAINING, WORDINGS, tasks_of, wording
from sim.adapters.metaworld_tasks import TASKS
from sim.adapters.metaworld_words import CAMERAS, EXPERT_STATE, WHICH_TASK, SharedRenderer, WordsLanes
from sim.registry import list_envs, make_env, make_expert, option_of, task_in, tasks_in
from sim.vec.workers import WorkerVecEnv

PAIR = "metaworld/faucet-open-v3+faucet-close-v3"


@pytest.fixture
def env(monkeypatch: pytest.MonkeyPatch) -> Iterator[WorkerVecEnv]:
    """Two lanes of two tasks with black pictures: tests of seeds and words need no OpenGL."""
    black = np.zeros((64, 64, 3), np.uint8)
    monkeypatch.setattr(SharedRenderer, "__init__", lambda self, *args: None)
    monkeypatch.setattr(SharedRenderer, "shots", lambda self, simulation: dict.fromkeys(CAMERAS, black))
    made = make_env(PAIR, 2)
    assert isinstance(made, WorkerVecEnv)
    with made:
        yield made


def seed_of(number: int) -> int:
    return next(seed for seed in range(100) if task_in(PAIR, seed) == number)


def test_every_task_has_wordings_for_training_and_new_ones() -> None:
    """All are instructions, no two tasks share one, and the suites name tasks that exist."""
    every = [text for texts in WORDINGS.values() for text in texts]
    assert len(set(every)) == len(every)
    for task, texts in WORDINGS.items():
        assert task in TASKS
        assert len(texts) >= TRAINING + 2
        assert [to_text(to_bytes(text)) for text in texts] == list(texts)
    assert all(task in WORDINGS for tasks in SUITES.values() for task in tasks)


def test_names_of_suites() -> None:
    assert tasks_in("metaworld/mt6") == SUITES["mt6"]
    assert tasks_in(PAIR) == ("faucet-open-v3", "faucet-close-v3")
    assert tasks_in("metaworld/reach-v3+") == ("reach-v3",)
    assert tasks_in("metaworld/reach-v3") == ()
    assert {"metaworld/mt6", "metaworld/mt10"} <= set(list_envs())
    with pytest.raises(UnknownNameError, match="faucet-opne-v3"):
        make_env("metaworld/faucet-opne-v3+faucet-close-v3", 1)
    with pytest.raises(ConfigError, match="twice"):
        tasks_of("reach-v3+reach-v3")
    with pytest.raises(UnknownNameError, match="set of wordings"):
        make_env("metaworld/mt6", 1, wordings="old")


def test_the_name_holds_what_matters_to_a_policy() -> None:
    """A policy keeps the name: without the size of its pictures it could not be evaluated. Names of before
    stand for the same environments.
    """
    assert WordsLanes("mt6").spec.name == "metaworld/mt6"
    assert WordsLanes("mt6", picture_px=64, wordings="training", reward="dense").spec.name == "metaworld/mt6"
    for options in ({"picture_px": 96}, {"wordings": "new"}, {"picture_px": 32, "wordings": "new"}):
        made = make_env("metaworld/mt6", 1, **options)
        again = make_env(made.spec.name, 1)
        assert again.spec == made.spec
        assert [option_of(made.spec.name, key) for key in options] == list(options.values())
        assert tasks_in(made.spec.name) == SUITES["mt6"]
        seeds = range(20)
        assert [task_in(made.spec.name, s) for s in seeds] == [task_in("metaworld/mt6", s) for s in seeds]
    plain = make_env("metaworld/mt6:picture_px=96,wordings=new", 1, wordings="training")
    assert plain.spec.name == "metaworld/mt6:picture_px=96"


def test_the_seed_chooses_task_and_words(env: WorkerVecEnv) -> None:
    """Both lanes run either task, and the same seed gives the same episode whatever ran before."""
    both = [seed_of(0), seed_of(1)]
    first = env.reset(iter(both))
    again = env.reset(iter(both[::-1]))
    for key in ("state", INSTRUCTION, EXPERT_STATE, WHICH_TASK):
        assert torch.equal(first[key], again[key].flip(0)), key
    assert first[WHICH_TASK].tolist() == [[1.0, 0.0], [0.0, 1.0]]
    words = [to_text(row.numpy()) for row in first[INSTRUCTION]]
    assert [text in WORDINGS[task][:TRAINING] for text, task in zip(words, tasks_in(PAIR), strict=True)]
    assert "expert" not in "".join(key for key in env.spec.obs if key not in (EXPERT_STATE, WHICH_TASK))
    *_, info = env.step(torch.zeros(2, 4))
    assert info["task"].tolist() == [1.0, 0.0]


def test_new_wordings_are_none_of_training() -> None:
    for seed in range(20):
        task = tasks_in("metaworld/mt6")[task_in("metaworld/mt6", seed)]
        assert wording(task, seed) in WORDINGS[task][:TRAINING]
        assert wording(task, seed, new=True) in WORDINGS[task][TRAINING:]


def test_the_state_does_not_tell_the_tasks_apart(env: WorkerVecEnv) -> None:
    """Policies see hand and gripper only, which start alike in tasks with one scene."""
    states = env.reset(iter([seed_of(0), seed_of(1)]))["state"]
    assert states.shape == (2, 4)
    assert (states[0] - states[1]).abs().max() < 0.02


@pytest.mark.slow
def test_experts_solve_both_tasks_of_one_environment(env: WorkerVecEnv) -> None:
    """The script of each lane's task acts in it, also after the lane has changed its task."""
    expert, seeds = make_expert(PAIR), EpisodeSeeds("words")
    obs = env.reset(EpisodeSeeds("words"))
    running, step = torch.tensor([next(seeds), next(seeds)]), torch.zeros(2, dtype=torch.long)
    solved: list[tuple[int, bool]] = []
    while len(solved) < 6:
        obs, _, _, _, info = env.step(expert.act(obs, running, step))
        step += 1
        lanes = torch.nonzero(info["final_mask"]).flatten().tolist()
        solved += [(int(info["task"][lane]), bool(info["success"][lane])) for lane in lanes]
        step[info["final_mask"]], running = 0, info["next_seed"]
    assert all(success for _, success in solved)
    assert {task for task, _ in solved} == {0, 1}


@pytest.mark.slow
def test_pictures_show_the_scene_and_no_goal() -> None:
    """Two cameras see something, lanes share one renderer, and a picture depends on the seed only."""
    with make_env(PAIR, 2) as env:  # type: ignore[attr-defined]  # a WorkerVecEnv
        first = env.reset(iter([seed_of(0)] * 2))
        for key in CAMERAS:
            assert first[key].shape == (2, 64, 64, 3)
            assert first[key].float().std() > 10.0
            assert torch.equal(first[key][0], first[key][1])
