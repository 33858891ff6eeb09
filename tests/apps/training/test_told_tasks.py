"""A vision-language-action policy of recordings: the task of each episode is its instruction."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from policies.checkpoint import read_policy_json
from policies.vla.config import VlaConfig
from robo_rl.apps import train
from robo_rl.apps.training.train_data import TrainData
from robo_rl.apps.tuning import start
from robo_rl.conf.finetune import FinetuneVerb
from robo_rl.conf.train import TrainConfig
from robo_rl.core.errors import DataError
from robo_rl.core.spec import ActionSpec, ArraySpec, EnvSpec
from robo_rl.core.text.instruction import INSTRUCTION, to_bytes, to_text, with_instruction
from robo_rl.data.edit.changes import relabel_episodes
from robo_rl.data.store import DatasetWriter, EpisodeStore
from robo_rl.data.windows import WindowDataset, WindowSpec
from tests.apps.conftest import mean_pool, train_config

ROBOT = EnvSpec(
    "robot/arm",
    {"state": ArraySpec((2,)), "image.view": ArraySpec((16, 16, 3), "uint8")},
    ActionSpec((-1.0, -1.0), (1.0, 1.0)),
    10,
    10.0,
)
TASKS = ["open the drawer", "close the drawer"]


def recordings(folder: Path, tasks: list[str]) -> Path:
    """An episode of each task, as a robot records them; the state is the number of the episode."""
    writer = DatasetWriter.create(folder, ROBOT)
    for i, task in enumerate(tasks):
        with writer.episode(task=task) as episode:
            obs = {"state": np.full(2, i, np.float32), "image.view": np.zeros((16, 16, 3), np.uint8)}
            for _ in range(4):
                episode.add(obs, np.full(2, 0.1 * i, np.float32), reward=0.0)
            episode.commit(success=True, final_obs=obs)
    writer.close()
    return folder


def test_every_window_has_the_task_of_its_episode(tmp_path: Path) -> None:
    """The files are as before, and so is the dataset for policies without words."""
    folder = recordings(tmp_path / "data", TASKS)
    told = TrainData.select(str(folder), "unfailed", task_as_instruction=True)
    assert set(told.spec.obs) == {"state", "image.view", INSTRUCTION}
    assert told.wordings() == {text: (text,) for text in sorted(TASKS)}
    batch = WindowDataset(folder, WindowSpec(1, 2), tuple(told.spec.obs)).gather(range(8))
    for state, words in zip(batch["state"], batch[INSTRUCTION], strict=True):
        assert to_text(words[0].numpy()) == TASKS[int(state[0, 0])]
    assert "'close the drawer', 'open the drawer'" in told.task_instruction_sentence()
    plain = TrainData.select(str(folder), "unfailed")
    assert set(plain.spec.obs) == set(EpisodeStore(folder).spec.obs) == {"state", "image.view"}
    assert not plain.task_instruction_sentence()
    relabel_episodes(folder, [0], task="pull the drawer")
    assert (
        TrainData.select(str(folder), "unfailed", task_as_instruction=True).fingerprint()
        != told.fingerprint()
    )


def test_the_name_of_an_environment_is_no_instruction(tmp_path: Path) -> None:
    """`collect` stores it as the task where nobody gives one; the sentence says how to change it."""
    named = [ROBOT.name, ROBOT.name, TASKS[0], ROBOT.name]
    mixed, words = recordings(tmp_path / "mixed", named), recordings(tmp_path / "words", TASKS)
    sentence = TrainData.select(
        f"[{words},{mixed}]", "all", task_as_instruction=True
    ).task_instruction_sentence()
    assert f"robo-rl data edit path={mixed} 'relabel=[0-1,3]' task=<words>" in sentence
    assert str(words) not in sentence


def test_recorded_instructions_come_first(tmp_path: Path) -> None:
    """A dataset with the observation keeps it."""
    spec = replace(ROBOT, obs={**ROBOT.obs, INSTRUCTION: ArraySpec((128,), "uint8")})
    writer = DatasetWriter.create(tmp_path / "data", spec)
    with writer.episode(task="another text") as episode:
        words = np.frombuffer(b"open it".ljust(128, b"\0"), np.uint8)
        obs = {"state": np.zeros(2, np.float32), "image.view": np.zeros((16, 16, 3), np.uint8)}
        episode.add({**obs, INSTRUCTION: words}, np.zeros(2, np.float32), reward=0.0)
        episode.commit(success=True)
    writer.close()
    data = TrainData.select(str(tmp_path / "data"), "unfailed", task_as_instruction=True)
    assert set(data.wordings()) == {"open it"}
    assert not data.task_instructions


@pytest.mark.parametrize(
    ("task", "says"),
    [
        ("", r"1 episode with neither an instruction nor a task.*'relabel=\[1\]' 'task=what was done'"),
        ("go " * 60, "The task of episode 1 of .* cannot be told.*at most 128"),
        ("go\tnow", "control character"),
        ("?!", "no letter and no digit"),
    ],
)
def test_episodes_without_a_task_to_tell_are_named(tmp_path: Path, task: str, says: str) -> None:
    folder = recordings(tmp_path / "data", ["open the drawer", task])
    with pytest.raises(DataError, match=says):
        TrainData.select(str(folder), "unfailed", task_as_instruction=True)
    TrainData.select(str(folder), "unfailed")  # other policies need none


def test_a_recorded_task_without_letters_can_still_be_read(tmp_path: Path) -> None:
    """Training refuses it as an instruction; older datasets are read as before."""
    store = EpisodeStore(recordings(tmp_path / "data", ["?!"]), task_as_instruction=True)
    assert to_text(store[0].obs(INSTRUCTION)[0]) == "?!"


def test_a_policy_of_recordings_is_trained_and_told_what_to_do_next(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next command can be pasted: it has an instruction that the policy knows. Fine-tuning replays the
    recordings.
    """
    folder, run = recordings(tmp_path / "data", TASKS), tmp_path / "run"
    small = VlaConfig(width=16, layers=1, heads=2, kv_heads=1, draws=1, spatial=0.0)
    few = {"steps": 1, "batch_size": 2, "policy": small, "net": TrainConfig().net}
    assert train.main(train_config(folder, run, chunk=4, execute=2, action_range="limits", **few)) == 0
    said = capsys.readouterr().out
    assert "the task of each episode is told ('close the drawer', 'open the drawer')" in said
    assert "'instruction=close the drawer'" in said
    assert read_policy_json(run / "policy")["train"]["task_instructions"] == sorted(TASKS)
    simulated = SimpleNamespace(spec=with_instruction(ROBOT), close=lambda: None)
    monkeypatch.setattr(start, "make_env", lambda *given, **options: simulated)
    config = FinetuneVerb(base=str(run), env="its simulation", demos=str(folder))
    config.method.name = "auto"
    assert start.load_base(config).kind == "vla"


@pytest.mark.parametrize("texts", [TASKS, TASKS[:1]])
def test_a_policy_without_words_says_that_it_reads_no_instructions(
    texts: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Data of one instruction need none to be read."""
    writer = DatasetWriter.create(tmp_path / "data", with_instruction(ROBOT))
    for text in texts:
        with writer.episode(task="") as episode:
            state, picture = np.zeros(2, np.float32), np.zeros((16, 16, 3), np.uint8)
            obs = {"state": state, "image.view": picture, INSTRUCTION: to_bytes(text)}
            for _ in range(4):
                episode.add(obs, np.zeros(2, np.float32), reward=0.0)
            episode.commit(success=True, final_obs=obs)
    writer.close()
    assert train.main(train_config(tmp_path / "data", tmp_path / "run", steps=1, image=mean_pool())) == 0
    said = "The data have several instructions, which policy=generative does not read; policy=vla does.\n"
    assert (said in capsys.readouterr().out) is (len(texts) == 2)
