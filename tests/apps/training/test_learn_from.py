"""`robo-rl train`: which episodes, and which of their steps, it learns from."""

from __future__ import annotations

import json
import shutil
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from policies.checkpoint import load_policy
from robo_rl.apps import train
from robo_rl.apps.training.train_data import TrainData
from robo_rl.core.errors import ConfigError, DataError
from robo_rl.core.spec import ActionSpec, ArraySpec, EnvSpec
from robo_rl.data.store import DatasetWriter, recover
from robo_rl.data.windows import WindowSpec
from robo_rl.runs import estimate
from tests.apps.conftest import mean_pool, train_config
from tests.data.recordings import ENV, STATE_ENV, add_frames, interrupt

Marks = tuple[bool | None, ...]


def dataset(path: Path, marks: Marks, env: EnvSpec = STATE_ENV, cut: bool = False) -> Path:
    """Episode k has seed k if none was skipped before it; seeds of failures are far from the others."""
    writer = DatasetWriter.create(path, env, min_free_bytes=0, durable=False)
    for k, mark in enumerate(marks):
        seed = 500 + k if mark is False else sum(other is not False for other in marks[:k])
        with writer.episode(seed=seed) as episode:
            add_frames(episode, seed, 4, env)
            episode.commit(success=mark)
    if cut:
        interrupt(writer, 900, 4, env)
        recover(path)
    return path


def trained(data: Path, out: Path, **changes: Any) -> tuple[bytes, dict[str, Any]]:
    """Weights, also those of the normaliser, and the note on the data."""
    assert train.main(train_config(data, out, image=mean_pool(), **changes)) == 0
    note = json.loads((out / "policy/policy.json").read_text())["train"]["data"]
    return (out / "policy/weights.safetensors").read_bytes(), note


@pytest.mark.parametrize("env", [STATE_ENV, ENV], ids=["states", "pictures"])
def test_failures_and_interrupted_episodes_are_not_used(
    env: EnvSpec, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Equal bit for bit to a policy of a dataset without them, also in the normaliser, with a message."""
    few = {"steps": 2, "checkpoint_every": 0, "log_every": 1}
    clean, note = trained(dataset(tmp_path / "clean", (True, None), env), tmp_path / "one", **few)
    assert "left out" not in capsys.readouterr().out
    assert note["left_out"] == {"failed": 0, "interrupted": 0, "unmarked": 0}
    mixed, note = trained(
        dataset(tmp_path / "mixed", (True, False, None), env, cut=True), tmp_path / "two", **few
    )
    assert mixed == clean
    assert (note["episodes"], note["frames"]) == (2, 8)
    assert note["left_out"] == {"failed": 1, "interrupted": 1, "unmarked": 0}
    said = capsys.readouterr().out
    assert "from 2 of the 4 episodes" in said
    assert "left out: 1 marked as failed, 1 interrupted. learn_from=all selects every one." in said


@pytest.mark.parametrize("name", ["robot/arm", "test/state"])
def test_a_dataset_without_committed_episodes(name: str, tmp_path: Path) -> None:
    """The sentence says what waits in staging/ and how to recover it."""
    data, config = tmp_path / "data", train_config(tmp_path / "data", tmp_path / "run")
    with closing(DatasetWriter.create(data, replace(STATE_ENV, name=name), min_free_bytes=0)) as writer:
        with pytest.raises(DataError, match=r"data holds no episodes. Collect, record or import some first."):
            train.main(config)
        interrupt(writer, 0, 3, STATE_ENV)
    with pytest.raises(DataError, match=r"1 episode, interrupted. Recover: .* path=.*data recover=true"):
        train.main(config)


@pytest.mark.parametrize(("rule", "episodes"), [("unfailed", 3), ("success", 1), ("all", 4)])
def test_learn_from_selects_the_episodes(rule: str, episodes: int, tmp_path: Path) -> None:
    """One success, one failure and two unlabelled episodes."""
    data = dataset(tmp_path / "data", (True, False, None, None))
    assert trained(data, tmp_path / "run", learn_from=rule)[1]["episodes"] == episodes


@pytest.mark.parametrize("env", [STATE_ENV, ENV], ids=["states", "pictures"])
def test_learn_steps_selects_where_chunks_begin(
    env: EnvSpec, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In every second step of the recordings a human acted."""
    data = dataset(tmp_path / "data", (True, True), env)
    every, _ = trained(data, tmp_path / "all")
    assert "Chunks begin" not in capsys.readouterr().out
    human, _ = trained(data, tmp_path / "human", learn_steps="human")
    assert "Chunks begin at 4 of 8 steps: 4 in which a human acted." in capsys.readouterr().out
    assert human != every


def test_learn_steps_counts_episodes_without_interventions_apart(tmp_path: Path) -> None:
    """Chunks begin at all their steps, though no human acted in them."""
    data = dataset(tmp_path / "data", (True, True))
    with closing(DatasetWriter.open(data, min_free_bytes=0)) as writer, writer.episode() as episode:
        add_frames(episode, 0, 1, STATE_ENV)
        episode.commit()
    selected = TrainData.select(str(data), "unfailed")
    assert len(selected.windows(WindowSpec(1, 1), 0, human_only=True)) == 5
    assert selected.human_sentence() == (
        "Chunks begin at 5 of 9 steps: 4 in which a human acted, and 1 of episodes without interventions."
    )


def test_learn_steps_needs_interventions(tmp_path: Path) -> None:
    writer = DatasetWriter.create(tmp_path / "data", STATE_ENV, min_free_bytes=0, durable=False)
    with writer.episode(seed=0) as episode:
        add_frames(episode, 0, 1, STATE_ENV)  # the first step of `add_frames` is no human's
        episode.commit(success=True)
    with pytest.raises(ConfigError, match=r"learn_steps=human .* has none"):
        train.main(train_config(tmp_path / "data", tmp_path / "run", learn_steps="human"))
    assert not (tmp_path / "run").exists()


def test_unlabelled_data_are_used_completely(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Human recordings of Push-T are unlabelled, which is no failure."""
    assert trained(dataset(tmp_path / "data", (None,) * 3), tmp_path / "run")[1]["episodes"] == 3
    assert "left out" not in capsys.readouterr().out


def test_resume_on_other_data_is_refused(tmp_path: Path) -> None:
    """Batches depend on the number of windows: later episodes need a new run; failures do not count."""
    data = dataset(tmp_path / "data", (True, None))
    whole, _ = trained(data, tmp_path / "run")
    writer = DatasetWriter.open(data, min_free_bytes=0, durable=False)
    for success in (False, True):
        with writer.episode(seed=7) as episode:
            add_frames(episode, 7, 4, STATE_ENV)
            episode.commit(success=success)
        if not success:
            assert trained(data, tmp_path / "run", resume=True)[0] == whole
    with pytest.raises(DataError, match=r"started on 2 episodes with 8 frames, but .* now has 3 with 12 "):
        trained(data, tmp_path / "run", resume=True)
    trained(data, tmp_path / "run", overwrite=True)


def test_resume_on_data_that_were_recorded_again_is_refused(tmp_path: Path) -> None:
    """The same number of episodes and frames, but other values, which its normaliser does not fit."""
    data = dataset(tmp_path / "data", (True, None))
    whole, _ = trained(data, tmp_path / "run")
    begun = json.loads((tmp_path / "run/data.json").read_text())
    assert trained(data, tmp_path / "run", resume=True)[0] == whole
    shutil.rmtree(data)
    with closing(DatasetWriter.create(data, STATE_ENV, min_free_bytes=0, durable=False)) as writer:
        for seed in (77, 78):
            with writer.episode(seed=seed) as episode:
                add_frames(episode, seed, 4, STATE_ENV)
                episode.commit(success=True)
    with pytest.raises(DataError, match=rf"now holds other ones.* by init={tmp_path / 'run'} and a new out="):
        trained(data, tmp_path / "run", resume=True)
    assert json.loads((tmp_path / "run/data.json").read_text()) == begun


def test_a_run_of_an_earlier_release_is_resumed(tmp_path: Path) -> None:
    """Its data.json has no checksum of the values."""
    data = dataset(tmp_path / "data", (True, None))
    whole, _ = trained(data, tmp_path / "run")
    begun = json.loads((tmp_path / "run/data.json").read_text())
    begun.pop("content_crc32")
    (tmp_path / "run/data.json").write_text(json.dumps(begun))
    assert trained(data, tmp_path / "run", resume=True)[0] == whole


@pytest.mark.parametrize(("marks", "rule"), [((False, False), "unfailed"), ((None, False), "success")])
def test_empty_selection_is_refused(marks: Marks, rule: str, tmp_path: Path) -> None:
    """Refused before a run folder is made."""
    data = dataset(tmp_path / "data", marks)
    with pytest.raises(DataError, match=rf"learn_from={rule} selects none of the 2 .* learn_from=all"):
        train.main(train_config(data, tmp_path / "run", learn_from=rule))
    assert not (tmp_path / "run").exists()


def test_an_image_of_another_type_is_named(tmp_path: Path) -> None:
    """A dataset of an earlier release may hold images of floats, which no encoder reads."""
    data = dataset(tmp_path / "data", (None,), ENV)
    meta = (data / "dataset.json").read_text()
    (data / "dataset.json").write_text(meta.replace('"uint8"', '"float32"', 1))
    with pytest.raises(
        DataError, match=r"'image.front' is float32 \(16, 12, 3\), but an image must be uint8"
    ):
        train.main(train_config(data, tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_depths_in_millimetres_are_refused(tmp_path: Path) -> None:
    """A dataset of an earlier release may hold them; the network would see a constant picture."""
    env = replace(ENV, obs={"state": ENV.obs["state"], "depth.front": ArraySpec((16, 12), "float32")})
    data = tmp_path / "data"
    DatasetWriter.create(data, env, min_free_bytes=0, durable=False).close()
    meta = json.loads((data / "dataset.json").read_text())
    meta["env"]["obs"]["depth.front"]["dtype"] = "uint16"
    (data / "dataset.json").write_text(json.dumps(meta))
    with pytest.raises(DataError, match=r"'depth.front' is uint16 .* divide millimetres by 1000"):
        train.main(train_config(data, tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_a_long_training_is_announced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One camera on a CPU may take an hour: the sentence names the settings that matter."""
    monkeypatch.setattr(estimate, "WATCHED_S", 0.0)
    monkeypatch.setattr(estimate, "LONG_S", 0.0)
    trained(dataset(tmp_path / "data", (None,), ENV), tmp_path / "run", steps=3, checkpoint_every=0)
    said = capsys.readouterr().out
    assert said.count("This will take about 0 min: 1 update of ") == 1
    assert "It trains an image encoder. An update is shorter with a smaller batch_size (now 16)" in said


@pytest.mark.parametrize(
    ("name", "range_", "limits"),
    [
        ("robot/mine", "auto", (-0.04, 0.24)),
        ("robot/mine", "limits", (-2, 2)),
        ("arm6/reach", "auto", (-2, 2)),
    ],
)
def test_policies_of_a_recorded_robot_act_in_the_range_of_its_actions(
    name: str, range_: str, limits: tuple[float, float], tmp_path: Path
) -> None:
    """Actions of 0 to 0.2 get a margin of 1 % of the limits (range 4); a simulator keeps its limits."""
    spec = EnvSpec(name, {"state": ArraySpec((1,))}, ActionSpec((-2.0,), (2.0,)), 9, 10.0)
    with DatasetWriter.create(tmp_path / "data", spec, min_free_bytes=0, durable=False).episode() as episode:
        for action in (0.0, 0.1, 0.2):
            episode.add({"state": np.array([action], np.float32)}, np.array([action], np.float32))
        episode.commit(success=True)
    few = {"steps": 1, "checkpoint_every": 0, "log_every": 1, "chunk": 1, "execute": 1}
    trained(tmp_path / "data", tmp_path / "run", action_range=range_, **few)
    learnt = load_policy(tmp_path / "run/policy").action_spec
    assert (learnt.low[0], learnt.high[0]) == pytest.approx(limits, rel=1e-5)
