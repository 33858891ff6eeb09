"""Rehearsal of a conversion: everything is read, checked and converted, and nothing is kept."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory
from typing import Any

from robo_rl.core.spec import EnvSpec
from robo_rl.data.episodes.commit import numbers
from robo_rl.data.episodes.dataset_writer import DatasetWriter
from robo_rl.data.episodes.disk import existing_parent, require_free
from robo_rl.data.episodes.episode_writer import EpisodeWriter
from robo_rl.data.episodes.schema import EPISODE_JSON, EPISODES, Codec, EpisodeMeta

_CURRENT: ContextVar[Rehearsal | None] = ContextVar("rehearsal", default=None)


class Rehearsal:
    """Totals of the dataset that would have been written, and its contract."""

    def __init__(self) -> None:
        self.env: EnvSpec | None = None
        self.stamps: tuple[str, ...] = ()
        self.episodes = self.frames = self.bytes = 0
        self.labelled = self.with_final_obs = self.with_task = 0

    def count(self, episode: Path) -> None:
        """Add a committed episode to the totals, and delete it."""
        meta = EpisodeMeta.load(episode / EPISODE_JSON)
        self.episodes += 1
        self.frames += meta.frames
        self.labelled += meta.success is not None
        self.with_final_obs += meta.final_obs
        self.with_task += bool(meta.task)
        self.bytes += sum(path.stat().st_size for path in episode.rglob("*") if path.is_file())
        rmtree(episode)


class _CountingWriter(DatasetWriter):
    """Writer that keeps one episode at a time, so that a rehearsal of 100 GB needs the space of one."""

    rehearsal: Rehearsal

    def episode(self, **options: Any) -> EpisodeWriter:
        self.count()
        return super().episode(**options)

    def count(self) -> None:
        for number in numbers(self.path):
            self.rehearsal.count(self.path / EPISODES / f"{number:06d}")


@contextmanager
def rehearsal() -> Iterator[Rehearsal]:
    """Context manager in which `atomic_dataset` creates nothing under its path and counts what it would have
    written.
    """
    token = _CURRENT.set(Rehearsal())
    try:
        found = _CURRENT.get()
        assert found is not None
        yield found
    finally:
        _CURRENT.reset(token)


def current_rehearsal() -> Rehearsal | None:
    """The rehearsal of this context; None outside."""
    return _CURRENT.get()


@contextmanager
def counted_dataset(
    found: Rehearsal,
    out: Path,
    env: EnvSpec,
    *,
    image_codec: Codec,
    stamps: tuple[str, ...],
    info: Mapping[str, Any],
) -> Iterator[DatasetWriter]:
    """Context manager with a writer in a temporary folder; see `rehearsal`. Raises DiskFullError if the disk
    of `out` is too full to begin.
    """
    found.env, found.stamps = env, stamps
    with TemporaryDirectory(prefix="robo-rl-dry-run-") as folder:
        writer = _CountingWriter.create(
            Path(folder) / "dataset",
            env,
            image_codec=image_codec,
            stamps=stamps,
            min_free_bytes=0,
            durable=False,
            info=info,
        )
        assert isinstance(writer, _CountingWriter)
        writer.rehearsal = found
        require_free(existing_parent(out), 2**30)
        try:
            yield writer
            writer.count()
        finally:
            writer.close()
