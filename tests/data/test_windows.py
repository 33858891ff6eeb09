"""Windows compared with plain slicing, and through every kind of loader."""

from __future__ import annotations

import pickle
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from robo_rl.core.conditioning import HELD
from robo_rl.core.errors import ConfigError, DataError
from robo_rl.core.spec import ArraySpec, EnvSpec
from robo_rl.data.episodes.file_reads import FileReads
from robo_rl.data.store import DatasetWriter, EpisodeStore
from robo_rl.data.windows import WindowBatch, WindowDataset, WindowSpec, collate, load_tensors, window_loader
from tests.data.recordings import ENV, STATE_ENV, action, obs, record


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record(tmp_path_factory.mktemp("windows") / "set", [7, 1, 12])


def _naive(lengths: list[int], spec: WindowSpec, index: int) -> dict[str, Tensor]:
    """Window `index`, from the formulas that made the recording."""
    seed = 0
    while index >= lengths[seed]:
        index -= lengths[seed]
        seed += 1
    history = [obs(seed, max(0, index - back)) for back in reversed(range(spec.obs_steps))]
    actions = [action(seed, min(index + ahead, lengths[seed] - 1)) for ahead in range(spec.chunk)]
    window = {key: torch.from_numpy(np.stack([o[key] for o in history])) for key in ENV.obs}
    return {**window, "action": torch.from_numpy(np.stack(actions))}


@pytest.mark.parametrize(("obs_steps", "chunk"), [(1, 1), (2, 16), (5, 4), (9, 3)])
def test_windows_equal_naive_slicing(images: Path, obs_steps: int, chunk: int) -> None:
    """Every window of three episodes (7, 1 and 12 frames): history, actions, and the padding at both
    edges.
    """
    dataset = WindowDataset(images, WindowSpec(obs_steps, chunk))
    assert len(dataset) == 20
    batch = dataset.gather(np.arange(20))
    for i in range(20):
        expected, single = _naive([7, 1, 12], dataset.spec, i), dataset[i]
        for key, value in expected.items():
            torch.testing.assert_close(batch[key][i], value, rtol=0, atol=0)
            torch.testing.assert_close(single[key], value, rtol=0, atol=0)


def test_earlier_observations_are_a_stride_apart_and_marked(images: Path) -> None:
    """Three observations, 4 frames apart, before the newest: those before the episode are not held."""
    batch = WindowDataset(images, WindowSpec(1, 2, past=3, stride=4)).gather(np.arange(20))
    for i, (seed, t) in enumerate((seed, t) for seed, length in enumerate([7, 1, 12]) for t in range(length)):
        frames = [t - 12, t - 8, t - 4]
        assert batch[HELD][i].tolist() == [frame >= 0 for frame in frames]
        for key in ENV.obs:
            expected = np.stack([obs(seed, max(0, frame))[key] for frame in (*frames, t)])
            assert (batch[key][i].numpy() == expected).all()


@settings(max_examples=10, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 9), min_size=1, max_size=4),
    obs_steps=st.integers(1, 6),
    chunk=st.integers(1, 20),
    final=st.booleans(),
)
def test_windows_of_any_episodes(lengths: list[int], obs_steps: int, chunk: int, final: bool) -> None:
    """No window starts at the final observation or crosses an episode, for any lengths."""
    spec = WindowSpec(obs_steps, chunk)
    with TemporaryDirectory() as folder:
        path = record(Path(folder) / "set", lengths, env=STATE_ENV, final=final)
        tensors = load_tensors(path, spec)
    assert len(tensors["action"]) == sum(lengths)
    for i in range(sum(lengths)):
        expected = _naive(lengths, spec, i)
        torch.testing.assert_close(tensors["state"][i], expected["state"], rtol=0, atol=0)
        torch.testing.assert_close(tensors["action"][i], expected["action"], rtol=0, atol=0)


def test_the_first_action_belongs_to_the_last_observation(images: Path) -> None:
    """The convention: obs (t-1, t), actions (t, t+1, t+2)."""
    window = WindowDataset(images, WindowSpec(2, 3))[4]
    assert window["state"][:, 1].tolist() == [3, 4]
    np.testing.assert_array_equal(window["action"], [action(0, i) for i in (4, 5, 6)])


def test_jpeg_windows_equal_the_readers_images(tmp_path: Path) -> None:
    """The same pixels as decoded by the reader, in the right places."""
    path = record(tmp_path / "set", [5, 4], codec="jpeg")
    dataset, episode = WindowDataset(path, WindowSpec(3, 2)), EpisodeStore(path).episode(1)
    window = dataset[5 + 1]
    assert set(load_tensors(path, WindowSpec(3, 2))) == {"state", "action"}
    for key in ("image.front", "image.wrist"):
        np.testing.assert_array_equal(window[key], episode.obs(key)[[0, 0, 1]])


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_delivers_every_window_once(images: Path, workers: int) -> None:
    """Forked workers and no workers give the same batches, which cover the dataset."""
    dataset = WindowDataset(images, WindowSpec(2, 4))
    generator = torch.Generator().manual_seed(0)
    batches = list(window_loader(dataset, 6, num_workers=workers, generator=generator))
    assert [len(batch["action"]) for batch in batches] == [6, 6, 6, 2]
    joined = {key: torch.cat([batch[key] for batch in batches]) for key in batches[0]}
    order = (joined["state"][:, -1, 0] * 100 + joined["state"][:, -1, 1]).argsort()
    expected = dataset.gather(np.arange(20))
    for key, value in expected.items():
        torch.testing.assert_close(joined[key][order], value, rtol=0, atol=0)


def test_torchs_own_collate_works_too(images: Path) -> None:
    """A plain DataLoader without our collate gives equal batches, only slower."""
    dataset = WindowDataset(images, WindowSpec(2, 4))
    theirs = next(iter(torch.utils.data.DataLoader(dataset, batch_size=5)))
    for key, value in dataset.gather(range(5)).items():
        torch.testing.assert_close(theirs[key], value, rtol=0, atol=0)
    samples = dataset.__getitems__([1, 2])
    assert isinstance(samples, WindowBatch)
    assert len(samples) == len(list(samples)) == 2
    torch.testing.assert_close(collate([dataset[1], dataset[2]])["state"], samples.batch["state"])


def test_a_spawned_worker_gets_a_small_dataset(images: Path) -> None:
    """Spawn pickles the dataset: tables and open files stay behind, the worker opens its own."""
    dataset = WindowDataset(images, WindowSpec(2, 4))
    expected = dataset.gather(range(20))
    pickled = pickle.dumps(dataset)
    assert len(pickled) < 20_000
    for key, value in pickle.loads(pickled).gather(range(20)).items():
        torch.testing.assert_close(value, expected[key], rtol=0, atol=0)


def test_keys_and_episodes_can_be_chosen(images: Path) -> None:
    """State keys and selected episodes only, as `train` uses it."""
    dataset = WindowDataset(images, WindowSpec(1, 2), ["state"], episodes=[2, 0])
    assert (len(dataset), set(dataset[0])) == (19, {"state", "action"})
    assert dataset[0]["state"][0, 0] == 2
    assert set(load_tensors(images, WindowSpec(1, 2))) == {"state", "image.wrist", "image.front", "action"}
    with pytest.raises(DataError, match=r"\['state', 'image.front', 'image.wrist'\]|\['image.front'"):
        WindowDataset(images, WindowSpec(1, 2), ["image.top"])


@given(
    humans=st.lists(st.lists(st.booleans(), min_size=1, max_size=6), min_size=1, max_size=4),
    obs_steps=st.integers(1, 3),
    chunk=st.integers(1, 4),
)
@settings(max_examples=20, deadline=None)
def test_windows_that_begin_where_a_human_acted(humans: list[list[bool]], obs_steps: int, chunk: int) -> None:
    """Those of all windows, in order; all windows of an episode without interventions."""
    with TemporaryDirectory() as folder:
        writer = DatasetWriter.create(Path(folder) / "set", STATE_ENV, min_free_bytes=0, durable=False)
        for seed, human in enumerate(humans):
            with writer.episode(seed=seed) as episode:
                for frame, acted in enumerate(human):
                    seen, done = obs(seed, frame, STATE_ENV), action(seed, frame)
                    episode.add(seen, done, reward=0.0, terminated=False, intervention=acted)
                episode.commit(success=True)
        spec = WindowSpec(obs_steps, chunk)
        begins = [acted or not any(human) for human in humans for acted in human]
        dataset = WindowDataset(writer.path, spec, human_only=True)
        every = WindowDataset(writer.path, spec).gather(np.flatnonzero(begins))
        found, loaded = dataset.gather(range(len(dataset))), load_tensors(writer.path, spec, human_only=True)
        assert dataset.lengths.tolist() == [sum(human) or len(human) for human in humans]
        for key, value in every.items():
            torch.testing.assert_close(found[key], value, rtol=0, atol=0)
            torch.testing.assert_close(loaded[key], value, rtol=0, atol=0)
        with pytest.raises(IndexError, match="Windows are numbered"):
            dataset.gather([len(dataset)])


def test_more_episodes_than_open_files(images: Path) -> None:
    """A dataset may have more files than a process may open: the least recently used is closed."""
    paths = sorted(images.rglob("c.0.0.0.0"))
    reads, out = FileReads(limit=2), np.empty(4, dtype=np.uint8)
    for path in paths * 2:
        reads.into(out, path, 8)
        np.testing.assert_array_equal(out, np.fromfile(path, dtype=np.uint8)[8:12])
    assert reads.open_files == 2
    reads.close()
    assert reads.open_files == 0


@pytest.mark.parametrize("read_before", [True, False])
def test_a_file_cut_off_under_a_running_training(tmp_path: Path, read_before: bool) -> None:
    """An error that names the file; a memory map would kill the process with SIGBUS."""
    path = record(tmp_path / "set", [8], env=_big_env())
    dataset = WindowDataset(path, WindowSpec(2, 2))
    if read_before:
        dataset[0]
    shard = path / "episodes/000000/image.front/c.0.0.0.0"
    shard.write_bytes(shard.read_bytes()[:20_000])
    with pytest.raises(DataError, match=r"image\.front.* is truncated"):
        dataset[7]
    shard.unlink()
    with pytest.raises(DataError, match="is missing"):
        WindowDataset(path, WindowSpec(2, 2))


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_changed_byte_of_an_image_is_noticed(tmp_path: Path, num_workers: int) -> None:
    """Each file is compared with its checksum before its first image is used, in workers as well."""
    path = record(tmp_path / "set", [3, 3], env=_big_env())
    dataset = WindowDataset(path, WindowSpec(1, 1))
    shard = path / "episodes/000001/image.front/c.0.0.0.0"
    data = bytearray(shard.read_bytes())
    data[0] ^= 1
    shard.write_bytes(data)
    batches = iter(window_loader(dataset, 3, shuffle=False, num_workers=num_workers))
    next(batches)
    with pytest.raises(DataError, match=r"checksum of .*000001/image\.front") as refused:
        next(batches)
    # Both hold the iterator in a cycle; its workers end at once only if it is not left to the collector.
    refused.value.__traceback__ = None
    del refused


def test_wrong_requests(images: Path, tmp_path: Path) -> None:
    """An index after the end, an empty window, an empty dataset, images into memory: one error each."""
    with pytest.raises(IndexError, match="0 to 19, found 3 to 20"):
        WindowDataset(images, WindowSpec()).gather([3, 20])
    with pytest.raises(ConfigError, match="at least 1"):
        WindowSpec(0, 4)
    with pytest.raises(DataError, match="holds no episodes"):
        WindowDataset(record(tmp_path / "empty", []), WindowSpec())
    with pytest.raises(DataError, match="Use a WindowDataset"):
        load_tensors(record(tmp_path / "big", [2], env=_big_env()), WindowSpec(), ["image.front"])


def _big_env() -> EnvSpec:
    """Its images are too large for a table in memory."""
    return EnvSpec(
        "test/big", {**STATE_ENV.obs, "image.front": ArraySpec((64, 64, 3), "uint8")}, ENV.action, 100, 20.0
    )
