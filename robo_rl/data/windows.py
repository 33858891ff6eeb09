"""Training windows: To observations that end at frame t, Tp actions that start at frame t.

    observations  t - To + 1 ... t        actions  t ... t + Tp - 1

    earlier ones, with `past` K      t - K * stride, ..., t - 2 * stride, t - stride  before those

So `action[0]` was executed from the last observation. There is one window per frame. Edges are padded by
repetition: of the first observation before an episode, of the last action after it. Observations and actions
are in physical units, images uint8. A batch is a flat dict of observation keys and "action"; with earlier
observations, also of "held" (b, K), False for those before the episode.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy import ndarray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, default_collate

from robo_rl.core.conditioning import HELD
from robo_rl.core.errors import ConfigError, DataError
from robo_rl.core.shapes import Bool, Int64, Shaped, UInt8
from robo_rl.core.text.instruction import INSTRUCTION
from robo_rl.data import jpeg
from robo_rl.data.episodes.file_reads import FileReads
from robo_rl.data.episodes.reader import Episode, EpisodeStore
from robo_rl.data.episodes.schema import DatasetMeta
from robo_rl.data.episodes.shard import checked_shard, row_bytes, verify

TABLE_ROW_BYTES = 4096  # smaller rows are held in memory, all episodes in one tensor

Batch = dict[str, Tensor]


def in_memory(dataset: DatasetMeta, key: str) -> bool:
    """True for observations held in one tensor; larger ones (images) are read when needed."""
    spec = dataset.env.obs[key]
    return key not in dataset.jpeg_keys and row_bytes(spec.dtype, tuple(spec.shape)) < TABLE_ROW_BYTES


@dataclass(frozen=True, slots=True)
class WindowSpec:
    """Lengths of a window: To = `obs_steps` observations, Tp = `chunk` actions.

    past, stride: K earlier observations, each `stride` frames after the one before.
    """

    obs_steps: int = 2
    chunk: int = 16
    past: int = 0
    stride: int = 1

    @property
    def offsets(self) -> Int64[ndarray, " K_To"]:
        """Frames of the observations relative to t: the earlier ones, then the To newest."""
        earlier = (1 - self.obs_steps) - self.stride * np.arange(self.past, 0, -1)
        return np.concatenate([earlier, np.arange(1 - self.obs_steps, 1)])

    def __post_init__(self) -> None:
        if self.obs_steps < 1 or self.chunk < 1:
            raise ConfigError(f"A window needs at least 1 observation and 1 action, found {self}.")


class WindowDataset(Dataset[Batch]):
    """Windows over the frames of a dataset; a torch Dataset, safe with forked and spawned workers.

    Args:
        path: the dataset.
        spec: lengths of the windows.
        keys: observation keys to load; None: all. "instruction" is the episode's task where none was stored.
        episodes: store indices of the episodes; None: all.
        complete_only: leave out episodes that `recover` salvaged.
        human_only: in episodes with interventions, windows begin only at steps in which a human acted.
    """

    def __init__(
        self,
        path: str | Path,
        spec: WindowSpec,
        keys: Sequence[str] | None = None,
        *,
        episodes: Sequence[int] | None = None,
        complete_only: bool = False,
        human_only: bool = False,
    ) -> None:
        task_as_instruction = keys is not None and INSTRUCTION in keys
        store = EpisodeStore(path, complete_only=complete_only, task_as_instruction=task_as_instruction)
        self.spec, self.env, self._path = spec, store.spec, Path(path)
        self.keys = tuple(store.spec.obs if keys is None else keys)
        if unknown := set(self.keys) - store.spec.obs.keys():
            raise DataError(f"{path} has no observations {sorted(unknown)}. It has {sorted(store.spec.obs)}.")
        self._episodes = [store.episode(i) for i in (range(len(store)) if episodes is None else episodes)]
        if not self._episodes:
            raise DataError(f"{path} holds no episodes to train on. Collect or import some first.")
        self._ends = np.cumsum([episode.frames for episode in self._episodes])
        self._starts = self._ends - [episode.frames for episode in self._episodes]
        # frame of every window's first action, counted over all episodes; None: every frame
        self._begins = np.flatnonzero(self._human()) if human_only else None
        # Shared by worker processes, so each file is read for its checksum once, by the first that needs it.
        self._verified = torch.zeros(len(self._episodes), len(self.keys), dtype=torch.bool).share_memory_()
        self._open()

    def _open(self) -> None:
        in_table = [key for key in self.keys if in_memory(self._episodes[0].dataset, key)]
        self._tables = {key: self._table(key) for key in (*in_table, "action")}
        self._images: dict[str, _ImageRows] = {}
        for i, key in enumerate(self.keys):
            if key not in in_table:
                shards = _VerifiedShards(key, self._episodes, self._verified[:, i])
                is_jpeg = key in self._episodes[0].dataset.jpeg_keys
                self._images[key] = (_JpegRows if is_jpeg else _RawRows)(key, self._episodes, shards)

    def _table(self, name: str) -> Shaped[Tensor, "frames ..."]:
        # No window starts at the final observation, which has no action.
        return torch.from_numpy(
            np.concatenate([episode.array(name)[: episode.frames] for episode in self._episodes])
        )

    def _human(self) -> Bool[ndarray, " frames"]:
        """True at steps in which a human acted, and in all of an episode without interventions."""
        human = [np.asarray(episode.intervention) for episode in self._episodes]
        return np.concatenate([acted if acted.any() else np.ones_like(acted) for acted in human])

    @property
    def lengths(self) -> Int64[ndarray, " episodes"]:
        """Number of windows of each episode."""
        if self._begins is not None:
            return np.bincount(self._owners(self._begins), minlength=len(self._ends))
        lengths: Int64[ndarray, " episodes"] = self._ends - self._starts
        return lengths

    def _owners(self, frame: Int64[ndarray, " b"]) -> Int64[ndarray, " b"]:
        """Numbers of the episodes to which these frames belong."""
        return np.searchsorted(self._ends, frame, side="right")

    def __len__(self) -> int:
        return int(self._ends[-1]) if self._begins is None else len(self._begins)

    def __getitem__(self, index: int) -> Batch:
        return {key: value[0] for key, value in self.gather([index]).items()}

    def __getitems__(self, indices: Sequence[int]) -> WindowBatch:
        return WindowBatch(self.gather(indices))

    def gather(self, indices: Sequence[int] | Int64[ndarray, " b"] | Int64[Tensor, " b"]) -> Batch:
        """Windows {key: (b, K + To, *shape), "action": (b, Tp, a)}. Raises IndexError for an index after the
        last window.
        """
        index = np.asarray(indices, dtype=np.int64)
        if index.size and (index.min() < 0 or index.max() >= len(self)):
            raise IndexError(
                f"Windows are numbered 0 to {len(self) - 1}, found {index.min()} to {index.max()}."
            )
        index = index if self._begins is None else self._begins[index]
        episode = self._owners(index)
        first, last = self._starts[episode], self._ends[episode] - 1
        actions = np.minimum(index[:, None] + np.arange(self.spec.chunk), last[:, None])
        wanted = index[:, None] + self.spec.offsets
        history = np.maximum(wanted, first[:, None])
        batch: Batch = {}
        if past := self.spec.past:
            batch[HELD] = torch.from_numpy(wanted[:, :past] >= first[:, None])
        for key in self.keys:
            if key in self._tables:
                batch[key] = self._tables[key][torch.from_numpy(history)]
            else:
                batch[key] = self._gather_images(key, episode, history - first[:, None])
        batch["action"] = self._tables["action"][torch.from_numpy(actions)]
        return batch

    def _gather_images(
        self, key: str, episode: Int64[ndarray, " b"], rows: Int64[ndarray, "b To"]
    ) -> Shaped[Tensor, "b To ..."]:
        spec = self.env.obs[key]
        batch = torch.empty((*rows.shape, *spec.shape), dtype=spec.torch_dtype)
        out, source = batch.numpy(), self._images[key]
        for step in range(self.spec.past):
            for window, (e, row) in enumerate(zip(episode.tolist(), rows[:, step].tolist(), strict=True)):
                source.read(e, row, row + 1, out[window, step : step + 1])
        rows, out = rows[:, self.spec.past :], out[:, self.spec.past :]
        for window, (e, lo, hi) in enumerate(
            zip(episode.tolist(), rows[:, 0].tolist(), rows[:, -1].tolist(), strict=True)
        ):
            padding = rows.shape[1] - (hi - lo + 1)
            source.read(e, lo, hi + 1, out[window, padding:])
            if padding:
                out[window, :padding] = out[window, padding]
        return batch

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k not in ("_tables", "_images")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._open()


class WindowBatch(Sequence[Batch]):
    """A fetched batch with the interface of a list of samples."""

    def __init__(self, batch: Batch) -> None:
        self.batch = batch

    def __len__(self) -> int:
        return len(self.batch["action"])

    def __getitem__(self, index: Any) -> Any:
        return {key: value[index] for key, value in self.batch.items()}

    def __iter__(self) -> Iterator[Batch]:
        return (self[i] for i in range(len(self)))


def collate(samples: WindowBatch | list[Batch]) -> Batch:
    """`collate_fn` that returns a `WindowBatch` unchanged."""
    return samples.batch if isinstance(samples, WindowBatch) else default_collate(samples)


def window_loader(
    dataset: WindowDataset, batch_size: int, *, shuffle: bool = True, num_workers: int = 0, **options: Any
) -> DataLoader[Batch]:
    """DataLoader of complete batches. options: of torch's DataLoader (pin_memory, drop_last ...)."""
    return DataLoader(
        dataset, batch_size, shuffle=shuffle, num_workers=num_workers, collate_fn=collate, **options
    )


def load_tensors(
    path: str | Path,
    spec: WindowSpec,
    keys: Sequence[str] | None = None,
    *,
    episodes: Sequence[int] | None = None,
    human_only: bool = False,
) -> Batch:
    """All windows of a small dataset, {key: (N, To, *shape), "action": (N, Tp, a)}.

    keys: None loads every observation but images. human_only: see `WindowDataset`. Raises DataError for
    images, which need a WindowDataset.
    """
    meta = EpisodeStore(path).meta
    small = [key for key in meta.env.obs if in_memory(meta, key)]
    chosen = small if keys is None else list(keys)
    if large := [key for key in chosen if key in meta.env.obs and key not in small]:
        raise DataError(f"{large} are too large to load at once. Use a WindowDataset for images.")
    dataset = WindowDataset(path, spec, chosen, episodes=episodes, human_only=human_only)
    return dataset.gather(np.arange(len(dataset)))


class _VerifiedShards:
    """Files of one key, one per episode. The checksum of each is verified before its first row is used.

    verified: (episodes,), True for verified files; processes may share it.
    """

    def __init__(self, key: str, episodes: Sequence[Episode], verified: Bool[Tensor, " episodes"]) -> None:
        self._shards = [(episode.path / key, episode.array_meta(key)) for episode in episodes]
        self._paths = [checked_shard(*shard) for shard in self._shards]
        self._verified = verified
        self._files = FileReads()

    def read(self, episode: int, offset: int, out: Shaped[ndarray, "..."]) -> None:
        """Fill `out` from byte `offset` of an episode's file. Raises DataError if its bytes have changed."""
        if not self._verified[episode]:
            verify(*self._shards[episode])
            self._verified[episode] = True
        self._files.into(out, self._paths[episode], offset)


class _RawRows:
    """Uncompressed images of one key: rows of fixed size from the start of the shard."""

    def __init__(self, key: str, episodes: Sequence[Episode], shards: _VerifiedShards) -> None:
        array = episodes[0].array_meta(key)
        self._row_bytes = row_bytes(array.dtype, array.shape[1:])
        self._shards = shards

    def read(self, episode: int, start: int, stop: int, out: Shaped[ndarray, "rows ..."]) -> None:
        self._shards.read(episode, start * self._row_bytes, out)


class _JpegRows:
    """JPEG images of one key: one read for all bytes of a window, one decode per image."""

    def __init__(self, key: str, episodes: Sequence[Episode], shards: _VerifiedShards) -> None:
        self._ends = [episode.jpeg_ends(key) for episode in episodes]
        self._shards = shards

    def read(self, episode: int, start: int, stop: int, out: UInt8[ndarray, "rows h w 3"]) -> None:
        ends = self._ends[episode][start : stop + 1].tolist()
        data = np.empty(ends[-1] - ends[0], dtype=np.uint8)
        self._shards.read(episode, ends[0], data)
        for i in range(stop - start):
            jpeg.decode(data[ends[i] - ends[0] : ends[i + 1] - ends[0]], out[i])


_ImageRows = _RawRows | _JpegRows
