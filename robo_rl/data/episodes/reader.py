"""Reading datasets: each array is a memory map of its shard, without copies and without zarr-python."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import SupportsIndex

import numpy as np
from numpy import ndarray

from robo_rl.core.errors import DataError
from robo_rl.core.shapes import Bool, Float32, Int64, Shaped
from robo_rl.core.spec import EnvSpec
from robo_rl.core.text.counts import counted
from robo_rl.core.text.instruction import INSTRUCTION, MOST_BYTES, to_bytes, with_instruction
from robo_rl.data import jpeg
from robo_rl.data.episodes.commit import numbers
from robo_rl.data.episodes.schema import (
    CONTINUES,
    EPISODE_JSON,
    EPISODES,
    JPEG_ENDS,
    SPLIT,
    STAMPS,
    ArrayMeta,
    DatasetMeta,
    EpisodeMeta,
)
from robo_rl.data.episodes.shard import memory_map, verify


class Episode:
    """One committed episode. n = frames (actions); observations have n rows, n + 1 with `has_final_obs`.

    task_is_instruction: its task is the observation `instruction`, in every row; that is not stored.
    """

    def __init__(self, path: Path, dataset: DatasetMeta, *, task_is_instruction: bool = False) -> None:
        self.path, self.task_is_instruction = path, task_is_instruction
        self.number = int(path.name)
        self.dataset = dataset
        self.meta = EpisodeMeta.load(path / EPISODE_JSON)
        self._verified: set[str] = set()

    def __repr__(self) -> str:
        frames = counted(self.frames, "frame")
        return f"Episode({self.path.name} of {self.dataset.env.name}: {frames}, success {self.success})"

    @property
    def frames(self) -> int:
        return self.meta.frames

    @property
    def success(self) -> bool | None:
        """True if the episode reached its goal; None without a label."""
        return self.meta.success

    @property
    def continues(self) -> bool:
        """True for a part of a split episode that ends at a cut: the recording went on after its last
        frame.
        """
        split = self.meta.info.get(SPLIT)
        if not isinstance(split, dict):
            return False
        if CONTINUES in split:
            return bool(split[CONTINUES])
        # of an earlier release: the first part keeps the number, and ends at the frame of the cut
        return (split.get("episode"), split.get("frame")) == (self.number, self.frames)

    @property
    def has_final_obs(self) -> bool:
        return self.meta.final_obs

    @property
    def obs_rows(self) -> int:
        return self.meta.rows("obs")

    @property
    def transitions(self) -> int:
        """Number of frames with a next observation: all, or all but the last one."""
        return self.frames if self.has_final_obs else self.frames - 1

    def array_meta(self, name: str) -> ArrayMeta:
        """Shape, type and checksum of an array. Raises DataError for an unknown name, and if type or shape in
        episode.json differ from the dataset's.
        """
        array, column = self.meta.arrays.get(name), self.dataset.column(name)
        if array is None or column is None:
            raise DataError(
                f"Episode {self.number:06d} has no array '{name}'. It has {sorted(self.meta.arrays)}."
            )
        rows = array.shape[0] if column.role == "blob" else self.meta.rows(column.role)
        if self.frames < 1 or (array.dtype, array.shape) != (column.dtype, (rows, *column.row_shape)):
            raise DataError(
                f"{self.path / EPISODE_JSON} says {self.frames} frames and '{name}' of {array.dtype}"
                f"{list(array.shape)}; the dataset needs {column.dtype}{[rows, *column.row_shape]}. It was "
                "changed after the recording, or belongs to another dataset: restore or delete the episode."
            )
        return array

    def array(self, name: str) -> Shaped[ndarray, "rows ..."]:
        """Read-only memory map of a stored array; for a JPEG camera, the blob of bytes.

        The first call reads the file for its checksum. Raises DataError if that differs.
        """
        if name == INSTRUCTION and self.task_is_instruction:
            return np.broadcast_to(to_bytes(self.meta.task, stored=True), (self.obs_rows, MOST_BYTES))
        array = self.array_meta(name)
        if name not in self._verified:
            verify(self.path / name, array)
            self._verified.add(name)
        return memory_map(self.path / name, array)

    def obs(self, key: str, start: int = 0, stop: int | None = None) -> Shaped[ndarray, "rows ..."]:
        """Observations [start, stop) of one key: a view of the map, or decoded JPEG images."""
        stop = self.obs_rows if stop is None else min(stop, self.obs_rows)
        if key not in self.dataset.jpeg_keys:
            return self.array(key)[start:stop]
        blob, ends = self.array(key), self.jpeg_ends(key)
        images = np.empty((max(0, stop - start), *self.dataset.env.obs[key].shape), dtype=np.uint8)
        for i, image in enumerate(images, start):
            jpeg.decode(blob[ends[i] : ends[i + 1]], image)
        return images

    def jpeg_ends(self, key: str) -> Int64[ndarray, " borders"]:
        """Offsets (rows + 1,): image i of a JPEG camera is blob[ends[i] : ends[i + 1]]. Raises DataError if
        they decrease or exceed the blob.
        """
        ends = self.array(JPEG_ENDS)[:, self.dataset.jpeg_keys.index(key)]
        borders = np.concatenate([np.zeros(1, dtype=np.int64), ends])
        if (borders[1:] <= borders[:-1]).any() or borders[-1] > self.array_meta(key).shape[0]:
            raise DataError(
                f"The image offsets of '{key}' in {self.path} do not fit its {self.array_meta(key).shape[0]} "
                "bytes. Restore the episode from a copy, or delete its directory."
            )
        return borders

    @property
    def action(self) -> Float32[ndarray, "n a"]:
        return self.array("action")

    @property
    def reward(self) -> Float32[ndarray, " n"]:
        return self.array("reward")

    @property
    def terminated(self) -> Bool[ndarray, " n"]:
        return self.array("terminated")

    @property
    def intervention(self) -> Bool[ndarray, " n"]:
        return self.array("intervention")

    def stamps(self) -> dict[str, Int64[ndarray, " n"]]:
        """Nanoseconds by column; -1 where no stamp was taken."""
        if not self.dataset.stamps:
            return {}
        return dict(zip(self.dataset.stamps, self.array(STAMPS).T, strict=True))


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over a dataset. labelled: episodes with a success flag; successes: those with a true one."""

    episodes: int
    incomplete: int
    frames: int
    seconds: float
    labelled: int
    successes: int


class EpisodeStore:
    """Committed episodes of a dataset, ordered by number.

    Raises DataError if `path` is no dataset or an episode.json is broken. Episodes committed later are
    visible after the store is opened again. task_as_instruction: the task of each episode is its instruction
    where none was stored as an observation.
    """

    def __init__(
        self, path: str | Path, *, complete_only: bool = False, task_as_instruction: bool = False
    ) -> None:
        self.path = Path(path)
        self.meta = DatasetMeta.load(self.path)
        task_is_instruction = task_as_instruction and INSTRUCTION not in self.meta.env.obs
        if task_is_instruction:
            self.meta = replace(self.meta, env=with_instruction(self.meta.env))
        folders = [self.path / EPISODES / f"{n:06d}" for n in numbers(self.path)]
        episodes = [Episode(folder, self.meta, task_is_instruction=task_is_instruction) for folder in folders]
        self._episodes = [e for e in episodes if e.meta.complete or not complete_only]

    def __fspath__(self) -> str:
        """Its folder: a dataset can be given wherever a path of one is expected."""
        return str(self.path)

    @property
    def spec(self) -> EnvSpec:
        return self.meta.env

    def __len__(self) -> int:
        return len(self._episodes)

    def __iter__(self) -> Iterator[Episode]:
        return iter(self._episodes)

    def __getitem__(self, index: SupportsIndex) -> Episode:
        """Episode at an index; negative ones count from the end. Raises IndexError outside the dataset."""
        at = operator.index(index)
        if not -len(self) <= at < len(self):
            raise IndexError(self._none_at(at))
        return self._episodes[at]

    def __repr__(self) -> str:
        episodes, frames = counted(len(self), "episode"), counted(self.totals.frames, "frame")
        return f"EpisodeStore('{self.path}': {episodes}, {frames} of {self.spec.name})"

    def _none_at(self, index: int) -> str:
        return f"{self.path} has {counted(len(self), 'episode')}, there is none at index {index}."

    def episode(self, index: int) -> Episode:
        """Episode at an index. Raises DataError for an index after the last one."""
        if not 0 <= index < len(self):
            raise DataError(self._none_at(index))
        return self._episodes[index]

    @property
    def totals(self) -> Totals:
        metas = [episode.meta for episode in self]
        frames = sum(meta.frames for meta in metas)
        return Totals(
            episodes=len(metas),
            incomplete=sum(not meta.complete for meta in metas),
            frames=frames,
            seconds=frames / self.spec.control_hz,
            labelled=sum(meta.success is not None for meta in metas),
            successes=sum(meta.success is True for meta in metas),
        )
