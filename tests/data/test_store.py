"""The store returns what was written, by every way of reading it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy import ndarray

from robo_rl.core.errors import DataError, LockedError
from robo_rl.core.spec import ActionSpec, ArraySpec, EnvSpec
from robo_rl.data.store import DatasetWriter, EpisodeStore, recover
from tests.data.recordings import ENV, STATE_ENV, action, add_frames, interrupt, obs, record, state

SHAPES = st.lists(st.integers(1, 5), max_size=3).map(tuple)
DTYPES = st.sampled_from(["float32", "float64", "float16", "uint8", "uint16", "int32", "int64", "bool"])


@settings(max_examples=15, deadline=None)
@given(
    shape=SHAPES,
    dtype=DTYPES,
    dim=st.integers(1, 4),
    frames=st.integers(1, 40),
    final=st.booleans(),
    data=st.data(),
)
def test_zarr_memmap_and_reader_return_the_written_data(
    shape: tuple[int, ...], dtype: str, dim: int, frames: int, final: bool, data: st.DataObject
) -> None:
    """Any shape, type and length: plain zarr, np.memmap on the shard and the reader see the same bytes."""
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    values = rng.integers(0, 2 if dtype == "bool" else 100, (frames + 1, *shape)).astype(dtype)
    actions = rng.standard_normal((frames, dim)).astype(np.float32)
    env = EnvSpec(
        "any/any", {"x": ArraySpec(shape, dtype)}, ActionSpec((-9.0,) * dim, (9.0,) * dim), 100, 10.0
    )
    with TemporaryDirectory() as folder:
        writer = DatasetWriter.create(Path(folder) / "set", env, min_free_bytes=0, durable=False)
        with writer.episode() as episode:
            for i in range(frames):
                episode.add({"x": values[i]}, actions[i])
            number = episode.commit(final_obs={"x": values[frames]} if final else None)
        _assert_reads(writer.path, number, {"x": values[: frames + final], "action": actions})


def _assert_reads(root: Path, number: int, expected: dict[str, ndarray]) -> None:
    episode, group = (
        EpisodeStore(root).episode(number),
        zarr.open_group(root / "episodes" / f"{number:06d}", mode="r"),
    )
    for name, values in expected.items():
        shard = next((episode.path / name).glob("c*"))
        plain = np.memmap(shard, dtype=values.dtype, mode="r", shape=values.shape)
        np.testing.assert_array_equal(group[name][...], values)
        np.testing.assert_array_equal(plain, values)
        np.testing.assert_array_equal(episode.array(name), values)
        assert group[name].dtype == episode.array(name).dtype == values.dtype


def test_large_arrays_span_chunks() -> None:
    """Rows of 4 KiB x 200: more than one chunk, a padded last one; plain zarr still sees exactly 200 rows."""
    values = np.random.default_rng(0).standard_normal((200, 1024)).astype(np.float32)
    env = EnvSpec("any/any", {"x": ArraySpec((1024,))}, ActionSpec((-1.0,), (1.0,)), 100, 10.0)
    with TemporaryDirectory() as folder:
        writer = DatasetWriter.create(Path(folder) / "set", env, min_free_bytes=0, durable=False)
        with writer.episode() as episode:
            for row in values:
                episode.add({"x": row}, [0.5])
            episode.commit()
        _assert_reads(writer.path, 0, {"x": values})
        assert zarr.open_array(writer.path / "episodes/000000/x", mode="r").chunks[0] < 200


def test_all_fields_round_trip(tmp_path: Path) -> None:
    """Reward, flags, stamps, label, task, seed and the final observation, each where the format says."""
    store = EpisodeStore(record(tmp_path / "set", [5, 3]))
    first = store.episode(0)
    assert (len(store), first.frames, first.obs_rows, first.transitions, first.has_final_obs) == (
        2,
        5,
        6,
        5,
        True,
    )
    assert (first.meta.success, first.meta.task, first.meta.seed, first.meta.complete) == (
        True,
        "task 0",
        0,
        True,
    )
    assert store.episode(1).meta.success is False
    np.testing.assert_array_equal(first.reward, np.arange(5, dtype=np.float32))
    assert first.terminated.tolist() == [False] * 4 + [True]
    assert first.intervention.tolist() == [False, True, False, True, False]
    assert first.stamps()["t_receive_ns"].tolist() == [i * 50_000_000 + 5_000_000 for i in range(5)]
    np.testing.assert_array_equal(first.obs("state")[5], state(0, 5))
    np.testing.assert_array_equal(first.action[2], action(0, 2))
    for i in range(6):
        np.testing.assert_array_equal(first.obs("image.front")[i], obs(0, i)["image.front"])
    assert store.totals.frames == 8
    assert store.totals.seconds == pytest.approx(8 / 20)
    assert store.spec == ENV


def test_a_store_may_hold_no_final_observation_and_no_stamps(tmp_path: Path) -> None:
    """Imported episodes have no final observation and no stamps: n - 1 transitions, and stamps of -1."""
    writer = DatasetWriter.create(tmp_path / "set", STATE_ENV, min_free_bytes=0, durable=False)
    with writer.episode() as episode:
        for i in range(4):
            episode.add({"state": state(0, i)}, action(0, i))
        episode.commit()
    read = EpisodeStore(tmp_path / "set").episode(0)
    assert (read.transitions, read.obs_rows, read.meta.success) == (3, 4, None)
    assert all((column == -1).all() for column in read.stamps().values())


def test_jpeg_is_plain_zarr_and_close_to_the_original(tmp_path: Path) -> None:
    """The blob and the ends are ordinary zarr arrays; decoded images differ by a few grey levels at quality
    95.
    """
    path = record(tmp_path / "set", [7, 4], codec="jpeg")
    episode = EpisodeStore(path).episode(1)
    group = zarr.open_group(path / "episodes/000001", mode="r")
    ends, blob = group["jpeg_ends"][:], group["image.front"][:]
    assert ends.shape == (5, 2)
    for i in range(5):
        data = blob[ends[i - 1, 0] if i else 0 : ends[i, 0]]
        assert data[:2].tobytes() == b"\xff\xd8", "each piece is a JPEG file of its own"
        decoded = episode.obs("image.front", i, i + 1)[0]
        assert np.abs(decoded.astype(int) - obs(1, i)["image.front"]).max() <= 8
    assert episode.obs("image.wrist").shape == (5, 8, 8, 3)


def test_few_files_per_episode(tmp_path: Path) -> None:
    """File systems and hubs handle one file per frame badly: 18 files for a state and two cameras, for any
    length.
    """
    path = record(tmp_path / "set", [30])
    files = [p for p in (path / "episodes/000000").rglob("*") if p.is_file()]
    assert len(files) == 18


def test_all_episodes_open_as_one_zarr_group(tmp_path: Path) -> None:
    """`zarr.open_group(dataset/episodes)` lists episodes and arrays without a warning (warnings are errors
    here).
    """
    path = record(tmp_path / "set", [3, 2], env=STATE_ENV)
    group = zarr.open_group(path / "episodes", mode="r")
    assert sorted(group.group_keys()) == ["000000", "000001"]
    names = {"state", "action", "reward", "terminated", "intervention", "stamps_ns"}
    assert {name for name, _ in group["000000"].arrays()} == names


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


def test_a_store_is_a_sequence_of_episodes(tmp_path: Path) -> None:
    """Indices as of a list: negative ones count from the end, others raise IndexError."""
    store = EpisodeStore(record(tmp_path / "set", [2, 3, 4]))
    assert [store[i].number for i in (0, np.int64(1), -1, -3)] == [0, 1, 2, 0]
    for index in (3, -4):
        with pytest.raises(IndexError, match=f"has 3 episodes, there is none at index {index}"):
            store[index]
    assert repr(store) == f"EpisodeStore('{tmp_path / 'set'}': 3 episodes, 9 frames of test/arm)"
    assert repr(store[0]) == "Episode(000000 of test/arm: 2 frames, success True)"


def test_recover_is_refused_while_recording(tmp_path: Path) -> None:
    """Salvaging an episode during its recording would truncate it, so it is refused."""
    writer = DatasetWriter.create(tmp_path / "set", STATE_ENV, min_free_bytes=0, durable=False)
    with writer.episode() as episode:
        add_frames(episode, 0, 2, STATE_ENV)
        with pytest.raises(DataError, match="being recorded into"):
            recover(tmp_path / "set")
        episode.commit()
    assert recover(tmp_path / "set") == []


def test_a_foreign_directory_is_named(tmp_path: Path) -> None:
    """A folder of another kind, a newer dataset and a broken one give one sentence each, no KeyError."""
    with pytest.raises(DataError, match="does not exist"):
        EpisodeStore(tmp_path / "nothing")
    path = record(tmp_path / "set", [2], env=STATE_ENV)
    file = path / "dataset.json"
    good = json.loads(file.read_text())
    for change, message in [
        ({"format": "lerobot"}, "not a dataset of this project"),
        ({"version": 99}, "version 99"),
        ({"env": {"name": "x"}}, "is broken"),
        ({"image_codec": "png"}, "png"),
    ]:
        file.write_text(json.dumps({**good, **change}))
        with pytest.raises(DataError, match=message):
            EpisodeStore(path)
    file.write_bytes(b"\x00\xff\xfe")
    with pytest.raises(DataError, match="not valid JSON"):
        EpisodeStore(path)


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
