"""The store returns what was written, by every way of reading it."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy import ndarray

from robo_rl.core.errors import DataError
from robo_rl.core.spec import ActionSpec, ArraySpec, EnvSpec
from robo_rl.data.store import DatasetWriter, EpisodeStore
from tests.data.recordings import ENV, STATE_ENV, action, obs, record, state

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
    path = record(tmp_path / "set", [3, 30])
    for number in ("000000", "000001"):
        assert len([p for p in (path / "episodes" / number).rglob("*") if p.is_file()]) == 18


def test_all_episodes_open_as_one_zarr_group(tmp_path: Path) -> None:
    """`zarr.open_group(dataset/episodes)` lists episodes and arrays without a warning (warnings are errors
    here).
    """
    path = record(tmp_path / "set", [3, 2], env=STATE_ENV)
    group = zarr.open_group(path / "episodes", mode="r")
    assert sorted(group.group_keys()) == ["000000", "000001"]
    names = {"state", "action", "reward", "terminated", "intervention", "stamps_ns"}
    assert {name for name, _ in group["000000"].arrays()} == names


def test_a_store_is_a_sequence_of_episodes(tmp_path: Path) -> None:
    """Indices as of a list: negative ones count from the end, others raise IndexError."""
    store = EpisodeStore(record(tmp_path / "set", [2, 3, 4]))
    assert [store[i].number for i in (0, np.int64(1), -1, -3)] == [0, 1, 2, 0]
    for index in (3, -4):
        with pytest.raises(IndexError, match=f"has 3 episodes, there is none at index {index}"):
            store[index]
    assert repr(store) == f"EpisodeStore('{tmp_path / 'set'}': 3 episodes, 9 frames of test/arm)"
    assert repr(store[0]) == "Episode(000000 of test/arm: 2 frames, success True)"


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
