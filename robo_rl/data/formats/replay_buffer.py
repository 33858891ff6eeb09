"""Export to a zarr v2 replay buffer, the format of Diffusion Policy; exact import of such an export.

    data/<key> data/action data/reward data/terminated    all episodes in sequence
    meta/episode_ends                                      end (exclusive) of each episode
    robo_rl/...                                            what the format has no place for

`image.<camera>` becomes data/<camera>, other keys keep their names. Readers of the format see `data` and
`meta`; the attribute "robo_rl" and the group of that name make the import exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy import ndarray

from robo_rl.core.errors import DataError
from robo_rl.core.shapes import Shaped
from robo_rl.data.episodes.atomic_dataset import atomic_dataset
from robo_rl.data.episodes.reader import EpisodeStore
from robo_rl.data.episodes.schema import STAMPS, Codec, DatasetMeta
from robo_rl.data.formats.exported_labels import ExportedLabels, labelled
from robo_rl.data.formats.output import new_output
from robo_rl.data.formats.rows import (
    SIDECAR,
    EpisodeRows,
    ExportedEpisode,
    checksum,
    from_sidecar,
    raw_bytes,
    rows_of,
    short_name,
    sidecar,
    verified,
    write_rows,
)
from robo_rl.data.zarr_buffer import EPISODE_ENDS, ZarrBuffer, open_zarr

_CHUNK_BYTES = 1 << 21
Progress = Callable[[int, int], None] | None


def export_replay_buffer(path: str | Path, out: str | Path, progress: Progress = None) -> int:
    """Write a dataset as a replay buffer; returns the number of episodes. Raises DataError if it is empty."""
    store = EpisodeStore(path)
    ends = np.cumsum([episode.frames for episode in store], dtype=np.int64)
    if not len(ends):
        raise DataError(f"{path} holds no episodes to export.")
    with new_output(out, raw_bytes(store)) as partial:
        group = open_zarr().open_group(partial, mode="w", zarr_format=2)
        columns = list(_columns(store.meta))
        arrays = {name: _create(group, name, int(ends[-1]), dtype, shape) for name, dtype, shape in columns}
        last = [episode for episode in store if episode.has_final_obs]
        final = {
            key: _create(group, _final(key), len(last), spec.dtype, tuple(spec.shape))
            for key, spec in store.spec.obs.items()
            if last
        }
        group.create_array(EPISODE_ENDS, data=ends)
        checksums = []
        for i, episode in enumerate(store):
            rows = rows_of(episode)
            checksums.append(checksum(rows))
            block = slice(int(ends[i]) - rows.frames, int(ends[i]))
            for name, values in _named(rows, store.meta):
                arrays[name][block] = values
            for key, values in rows.final_obs().items():
                final[key][last.index(episode)] = values
            if progress is not None:
                progress(i + 1, len(ends))
        group.attrs[SIDECAR] = sidecar(store, checksums)
    return len(ends)


def exported_contract(source: str | Path) -> dict[str, Any] | None:
    """Contract and labels in a buffer that `export_replay_buffer` wrote; None for another one."""
    found = ZarrBuffer(source).attribute(SIDECAR)
    return found if isinstance(found, dict) else None


def exported_rate(source: str | Path) -> float | None:
    """Rate [Hz] of the dataset from which `export_replay_buffer` wrote a buffer; None for another buffer."""
    found = exported_contract(source)
    return None if found is None else from_sidecar(found)[0].env.control_hz


def import_exported(
    source: str | Path, out: str | Path, *, image_codec: Codec | None = None, limit: int | None = None,
    progress: Progress = None,
) -> int:  # fmt: skip
    """Exact inverse of `export_replay_buffer`; returns the number of episodes."""
    meta, episodes = from_sidecar(exported_contract(source))
    buffer = ZarrBuffer(source)
    ends = buffer.episode_ends()
    if len(ends) != len(episodes) or (np.diff(ends, prepend=0) <= 0).any():
        raise DataError(f"{source} has {len(ends)} episodes and labels of {len(episodes)}. Export it again.")
    info = {**meta.info, "source": Path(source).name}
    final_row = 0
    with atomic_dataset(
        out, meta.env, image_codec=image_codec or "raw", stamps=meta.stamps, info=info
    ) as writer:
        for i, each in enumerate(episodes[:limit]):
            label = each.labels
            block = slice(int(ends[i - 1]) if i else 0, int(ends[i]))
            columns = {name: buffer.read(name, block) for name, _, _ in _columns(meta)}
            stamps = columns[f"{SIDECAR}/{STAMPS}"].T if meta.stamps else ()
            rows = EpisodeRows(
                {key: columns[_data(meta, key)] for key in meta.env.obs},
                columns["data/action"],
                columns["data/reward"],
                columns["data/terminated"],
                columns[f"{SIDECAR}/intervention"],
                dict(zip(meta.stamps, stamps, strict=True)),
                label,
            )
            if label.final_obs:
                one = slice(final_row, final_row + 1)
                rows = rows.with_final_obs({key: buffer.read(_final(key), one)[0] for key in meta.env.obs})
                final_row += 1
            write_rows(writer, verified(rows, each.crc32c, f"Episode {i} of {source}"))
            if progress is not None:
                progress(i + 1, len(episodes[:limit]))
    return len(episodes[:limit])


class ExportedRecord:
    """What our export holds beside the arrays of a buffer, for an import with another contract or names.

    arrays: observation -> name of its array, such as "data/state". A buffer of another program has no record.
    """

    def __init__(self, buffer: ZarrBuffer, episodes: int, arrays: Mapping[str, str]) -> None:
        found = buffer.attribute(SIDECAR)
        self._buffer, self._arrays = buffer, arrays
        self._meta: DatasetMeta | None = None
        self._known: list[ExportedEpisode] = []
        if isinstance(found, dict):
            self._meta, self._known = from_sidecar(found)
        self._labels = ExportedLabels(self._known, episodes)
        finals = [each.labels.final_obs for each in self._known]
        self._final_rows = np.cumsum([0, *finals]).tolist()

    def completed(self, rows: EpisodeRows, position: int, block: slice, task: str) -> EpisodeRows:
        """`rows` of the episode at this position with labels, interventions and the final observation.

        block: its rows in the arrays of the buffer.
        """
        number = None
        if self._meta is not None:
            number = self._labels.number(position, self._buffer.read("data/action", block))
        known = None if number is None else self._known[number].labels
        if known is not None and number == position:
            human = self._buffer.read(f"{SIDECAR}/intervention", block)
            rows = replace(rows, intervention=human.reshape(rows.frames) > 0)
            if known.final_obs and (last := self._final(position)):
                rows = rows.with_final_obs(last)
        return labelled(rows, known, task)

    def notes(self) -> list[str]:
        """A sentence on episodes whose labels were not found."""
        return self._labels.notes()

    def _final(self, number: int) -> dict[str, Shaped[ndarray, "..."]]:
        """Observation after the last action; empty if the export has none of some array."""
        own = {} if self._meta is None else {_data(self._meta, key): key for key in self._meta.env.obs}
        if not own.keys() >= set(self._arrays.values()):
            return {}
        one = slice(self._final_rows[number], self._final_rows[number] + 1)
        return {key: self._buffer.read(_final(own[name]), one)[0] for key, name in self._arrays.items()}


def _columns(meta: DatasetMeta) -> Iterator[tuple[str, str, tuple[int, ...]]]:
    """Name, type and shape of a row of every array with one row per frame."""
    for key, spec in meta.env.obs.items():
        yield _data(meta, key), spec.dtype, tuple(spec.shape)
    yield "data/action", "float32", (meta.env.action.dim,)
    yield "data/reward", "float32", ()
    yield "data/terminated", "bool", ()
    yield f"{SIDECAR}/intervention", "bool", ()
    if meta.stamps:
        yield f"{SIDECAR}/{STAMPS}", "int64", (len(meta.stamps),)


def _named(rows: EpisodeRows, meta: DatasetMeta) -> Iterator[tuple[str, Shaped[ndarray, "n ..."]]]:
    for key, values in rows.obs.items():
        yield _data(meta, key), values[: rows.frames]
    yield "data/action", rows.action
    yield "data/reward", rows.reward
    yield "data/terminated", rows.terminated
    yield f"{SIDECAR}/intervention", rows.intervention
    if meta.stamps:
        yield f"{SIDECAR}/{STAMPS}", np.stack([rows.stamps[name] for name in meta.stamps], axis=1)


def _create(group: Any, name: str, rows: int, dtype: str, shape: tuple[int, ...]) -> Any:
    per_row = max(1, np.dtype(dtype).itemsize * int(np.prod(shape, dtype=np.int64)))
    chunk = max(1, min(rows, _CHUNK_BYTES // per_row))
    return group.create_array(name, shape=(rows, *shape), chunks=(chunk, *shape), dtype=dtype)


def _data(meta: DatasetMeta, key: str) -> str:
    return f"data/{short_name(meta.env, key)}"


def _final(key: str) -> str:
    return f"{SIDECAR}/final/{key}"
