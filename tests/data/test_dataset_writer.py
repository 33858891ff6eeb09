"""What the writer of a dataset refuses, keeps and never overwrites."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy import ndarray

from robo_rl.core.errors import DataError, LockedError
from robo_rl.core.spec import ArraySpec, EnvSpec
from robo_rl.data.store import DatasetWriter, EpisodeStore, recover
from tests.data.recordings import ENV, STATE_ENV, action, add_frames, interrupt, obs, record, state


def test_reopened_dataset_is_appended_to(tmp_path: Path) -> None:
    """An existing dataset is appended to, never overwritten; another contract is refused with both names."""
    path = record(tmp_path / "set", [2, 2], env=STATE_ENV)
    with DatasetWriter.open(path, STATE_ENV, min_free_bytes=0, durable=False).episode() as episode:
        add_frames(episode, 9, 3, STATE_ENV)
        assert episode.commit() == 2
    with pytest.raises(DataError, match=r"test/state.*test/arm"):
        DatasetWriter.open(path, ENV)
    with pytest.raises(DataError, match=r"exists already and is a dataset\. `robo-rl collect`"):
        DatasetWriter.create(path, STATE_ENV)


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_existing_files_are_not_changed(kind: str, tmp_path: Path) -> None:
    """The message names what exists and a remedy for the command line; a file cannot be opened to add
    episodes.
    """
    path = tmp_path / "there"
    if kind == "folder":
        path.mkdir()
    (path if kind == "file" else path / "notes.txt").write_text("mine")
    with pytest.raises(DataError, match="is a file" if kind == "file" else "not a dataset") as error:
        DatasetWriter.create(path, STATE_ENV)
    assert "Choose another path" in str(error.value)
    assert "Open it" not in str(error.value)
    assert (path if kind == "file" else path / "notes.txt").read_text() == "mine"


def test_interleaved_writers_never_share_a_number(tmp_path: Path) -> None:
    """Episodes recorded in parallel (one per lane, or by two recorders) each get their own directory."""
    writer = DatasetWriter.create(tmp_path / "set", STATE_ENV, min_free_bytes=0, durable=False)
    other = DatasetWriter.open(tmp_path / "set", min_free_bytes=0, durable=False)
    running = [writer.episode(seed=0), other.episode(seed=1), writer.episode(seed=2)]
    for seed, episode in enumerate(running):
        add_frames(episode, seed, 2 + seed, STATE_ENV)
    assert [episode.commit() for episode in reversed(running)] == [0, 1, 2]
    assert [episode.meta.seed for episode in EpisodeStore(tmp_path / "set")] == [2, 1, 0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"state": np.zeros(4)}, r"'state' is float64\[4\].*float32\[3\]"),
        ({"state": None}, r"keys \['image.front', 'image.wrist'\]"),
        ({"extra": np.zeros(1)}, "extra"),
        ({"image.front": np.zeros((16, 12, 3), dtype=np.float32)}, r"'image.front' is float32"),
    ],
)
def test_invalid_frame_is_refused_and_not_stored(
    tmp_path: Path, change: dict[str, ndarray | None], message: str
) -> None:
    """The message names the key, what was found and what was expected; the next valid frame is stored
    correctly.
    """
    writer = DatasetWriter.create(tmp_path / "set", ENV, min_free_bytes=0, durable=False)
    with writer.episode() as episode:
        add_frames(episode, 0, 1)
        bad = {k: v for k, v in {**obs(0, 1), **change}.items() if v is not None}
        with pytest.raises(DataError, match=message):
            episode.add(bad, action(0, 1))
        episode.add(obs(0, 1), action(0, 1))
        episode.commit()
    read = EpisodeStore(tmp_path / "set").episode(0)
    np.testing.assert_array_equal(read.obs("state"), [state(0, 0), state(0, 1)])


def test_unknown_stamps_and_empty_episodes_are_refused(tmp_path: Path) -> None:
    """A mistyped stamp would be lost silently, and an empty episode would break every reader."""
    writer = DatasetWriter.create(tmp_path / "set", STATE_ENV, min_free_bytes=0, durable=False)
    with writer.episode() as episode:
        with pytest.raises(DataError, match="t_captured"):
            episode.add({"state": state(0, 0)}, action(0, 0), stamps={"t_captured": 1})
        with pytest.raises(DataError, match="without frames"):
            episode.commit()
        episode.discard()
    assert list((tmp_path / "set/episodes").glob("0*")) == []


def test_numpy_scalars_and_notes_are_stored(tmp_path: Path) -> None:
    """Simulators return labels as numpy scalars; notes that are not JSON are refused at the start."""
    writer = DatasetWriter.create(
        tmp_path / "set", STATE_ENV, min_free_bytes=0, durable=False, info={"robot": "arm 3"}
    )
    with writer.episode(seed=np.int64(7), info={"noise": 0.5}) as episode:
        episode.add({"state": state(0, 0)}, action(0, 0), reward=np.float32(1), terminated=np.bool_(True))
        episode.commit(success=np.bool_(False))
    store = EpisodeStore(tmp_path / "set")
    meta = store.episode(0).meta
    assert (meta.seed, meta.success, meta.info, store.meta.info) == (
        7,
        False,
        {"noise": 0.5},
        {"robot": "arm 3"},
    )
    for info in ({"noise": float("nan")}, {"policy": object()}):
        with pytest.raises(DataError, match="must be JSON"):
            writer.episode(info=info)


@pytest.mark.parametrize(
    ("given", "stored"),
    [(None, None), (True, True), (np.bool_(False), False), (1, True), (0, False), (np.float64(1.0), True)],
)
def test_labels_of_success(given: Any, stored: bool | None, tmp_path: Path) -> None:
    """Flags, 0 and 1 are labels; simulators return both."""
    writer = DatasetWriter.create(tmp_path / "set", STATE_ENV, min_free_bytes=0, durable=False)
    with writer.episode() as episode:
        add_frames(episode, 0, 1, STATE_ENV)
        episode.commit(success=given)
    assert EpisodeStore(tmp_path / "set")[0].success is stored


@pytest.mark.wrong_types
@pytest.mark.parametrize("given", ["no", "false", "None", 2.5, [False], float("nan")])
def test_anything_else_is_no_label_of_success(given: Any, tmp_path: Path) -> None:
    """bool("no") is True: a failure would be stored as a success. The episode can still be committed."""
    writer = DatasetWriter.create(tmp_path / "set", STATE_ENV, min_free_bytes=0, durable=False)
    with writer.episode() as episode:
        add_frames(episode, 0, 1, STATE_ENV)
        with pytest.raises(DataError, match=r"^success=.* is no label of an episode: give True, False, or"):
            episode.commit(success=given)
        add_frames(episode, 0, 1, STATE_ENV)
        episode.commit(success=False)
    assert EpisodeStore(tmp_path / "set")[0].success is False


@pytest.mark.wrong_types
@pytest.mark.parametrize(
    "wrong",
    [
        {"terminated": "no"},
        {"intervention": "false"},
        {"terminated": 2},
        {"reward": "much"},
        {"reward": None},
    ],
)
def test_unclear_flags_and_rewards_of_a_frame_are_refused(wrong: dict[str, Any], tmp_path: Path) -> None:
    """The frame is not stored; 0 and 1, as simulators return them, are flags."""
    name, value = next(iter(wrong.items()))
    writer = DatasetWriter.create(tmp_path / "set", STATE_ENV, min_free_bytes=0, durable=False)
    obs, action = {"state": np.zeros(3, "float32")}, np.zeros(2, "float32")
    with writer.episode() as episode:
        with pytest.raises(DataError, match=f"^{name}={value!r} is no (flag of a frame|number)"):
            episode.add(obs, action, **wrong)
        episode.add(obs, action, reward=np.float64(1.0), terminated=np.float64(1.0), intervention=1)
        episode.commit()
    stored = EpisodeStore(tmp_path / "set")[0]
    assert (stored.reward.tolist(), stored.terminated.tolist()) == ([1.0], [True])


def test_an_observation_with_other_keys_is_named(tmp_path: Path) -> None:
    """The last observation by its argument."""
    writer = DatasetWriter.create(tmp_path / "set", STATE_ENV, min_free_bytes=0, durable=False)
    with writer.episode() as episode:
        with pytest.raises(DataError, match=r"^The observation has the keys \['joints'\]"):
            episode.add({"joints": state(0, 0)}, action(0, 0))
        add_frames(episode, 0, 1, STATE_ENV)
        with pytest.raises(DataError, match=r"^final_obs has the keys \[\], the dataset stores \['state'\]"):
            episode.commit(final_obs={})
        episode.commit()


def test_an_ended_episode_takes_no_more_frames(tmp_path: Path) -> None:
    """A frame after the commit has no episode."""
    writer = DatasetWriter.create(tmp_path / "set", STATE_ENV, min_free_bytes=0, durable=False)
    with writer.episode() as episode:
        add_frames(episode, 0, 2, STATE_ENV)
        episode.commit()
        with pytest.raises(DataError, match="has ended already"):
            episode.add({"state": state(0, 0)}, action(0, 0))


def test_leaving_the_block_early_keeps_the_frames(tmp_path: Path) -> None:
    """After an exception, Ctrl-C or a forgotten commit, `recover` restores the frames, marked incomplete."""
    writer = DatasetWriter.create(tmp_path / "set", STATE_ENV, min_free_bytes=0, durable=False)
    interrupt(writer, 1, 6, STATE_ENV)
    with pytest.raises(DataError) as error, writer.episode(seed=2) as episode:
        add_frames(episode, 2, 4, STATE_ENV)
    assert "The episode of 4 frames was neither committed nor discarded." in str(error.value)
    assert f"robo-rl data validate path={tmp_path / 'set'} recover=true" in str(error.value)
    assert len(EpisodeStore(tmp_path / "set")) == 0
    assert [(s.frames, s.complete) for s in recover(tmp_path / "set")] == [(6, False), (4, False)]
    salvaged = EpisodeStore(tmp_path / "set").episode(0)
    assert (salvaged.meta.task, salvaged.meta.seed, salvaged.meta.success) == ("interrupted", 1, None)
    np.testing.assert_array_equal(salvaged.obs("state"), [state(1, i) for i in range(6)])
    assert len(EpisodeStore(tmp_path / "set", complete_only=True)) == 0
    assert recover(tmp_path / "set") == []


def test_recover_is_refused_while_recording(tmp_path: Path) -> None:
    """Salvaging an episode during its recording would truncate it, so it is refused."""
    writer = DatasetWriter.create(tmp_path / "set", STATE_ENV, min_free_bytes=0, durable=False)
    with writer.episode() as episode:
        add_frames(episode, 0, 2, STATE_ENV)
        with pytest.raises(DataError, match="being recorded into"):
            recover(tmp_path / "set")
        episode.commit()
    assert recover(tmp_path / "set") == []


@pytest.mark.parametrize("key", ["../evil", "a/b", "action", "", ".hidden"])
def test_observation_keys_are_safe_names(tmp_path: Path, key: str) -> None:
    """A key becomes a directory: it must not leave the episode or hide one of the store's arrays."""
    env = EnvSpec("x/y", {key: ArraySpec((1,))}, ENV.action, 10, 10.0)
    with pytest.raises(DataError, match="cannot be stored"):
        DatasetWriter.create(tmp_path / "set", env)


def test_a_dataset_has_one_writing_process(tmp_path: Path) -> None:
    """Two `collect`s into one dataset recorded the same seeds twice; the second one is refused by name."""
    path = record(tmp_path / "set", [3])
    hold = (
        "import sys; from robo_rl.core.files.lock import FolderLock\n"
        "lock = FolderLock(sys.argv[1], 'dataset'); print('held', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", hold, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(LockedError, match=rf"set is in use by process {other.pid} .*another dataset"):
            DatasetWriter.open(path, min_free_bytes=0)
        assert len(EpisodeStore(path)) == 1  # readers need no lock
        other.kill()
    DatasetWriter.open(path, min_free_bytes=0).close()


def test_a_contract_that_cannot_be_stored_leaves_no_folder(tmp_path: Path) -> None:
    """The corrected script runs at the same path."""
    wrong = EnvSpec(
        "a/b", {"image.front": ArraySpec((8, 8, 3)), "state": ArraySpec((2,))}, STATE_ENV.action, 5, 1.0
    )
    with pytest.raises(
        DataError, match=r"'image.front' is float32 \(8, 8, 3\), but an image must be uint8 \(h, w, 3\)"
    ):
        DatasetWriter.create(tmp_path / "set", wrong, min_free_bytes=0)
    with pytest.raises(DataError, match="Unknown image codec 'png'"):
        DatasetWriter.create(tmp_path / "set", STATE_ENV, image_codec="png", min_free_bytes=0)  # type: ignore[arg-type]
    assert not (tmp_path / "set").exists()
    DatasetWriter.create(tmp_path / "set", STATE_ENV, min_free_bytes=0).close()
