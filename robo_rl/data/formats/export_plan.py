"""Plan of an export: all values are read and checked, two episodes are converted, nothing is kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from shutil import copytree
from tempfile import TemporaryDirectory
from typing import Any

from robo_rl.core.errors import DataError
from robo_rl.data.episodes.disk import existing_parent, require_free
from robo_rl.data.episodes.reader import EpisodeStore
from robo_rl.data.episodes.schema import DATASET_JSON, EPISODES
from robo_rl.data.formats.registry import load_part
from robo_rl.data.formats.rows import rows_of


@dataclass(frozen=True, slots=True)
class ExportPlan:
    """Size of an export. bytes: estimated from its first two episodes."""

    episodes: int
    frames: int
    bytes: int


def plan_export(
    path: str | Path,
    out: str | Path,
    format: str,
    *,
    progress: Callable[[int, int], None] | None = None,
    **options: Any,
) -> ExportPlan:
    """Read every value of a dataset, and convert the first two episodes in a temporary folder.

    Raises the error of the export for damaged values, a contract that the format cannot hold, a missing
    package, an `out` that exists and a disk that is too full.
    """
    store = EpisodeStore(path)
    if not len(store):
        raise DataError(f"{path} holds no episodes to export.")
    if Path(out).exists():
        raise DataError(f"{out} exists already. Choose another out=, or move it away.")
    write = load_part(format, "writer")
    for i, episode in enumerate(store):
        rows_of(episode)
        if progress is not None:
            progress(i + 1, len(store))
    size = _estimate(store, lambda sample, converted: write(sample, converted, **options))
    require_free(existing_parent(Path(out)), size)
    return ExportPlan(len(store), store.totals.frames, size)


def _estimate(store: EpisodeStore, write: Callable[[Path, Path], Any]) -> int:
    """Size of the export, from that of its first episode and of its first two."""
    frames: list[int] = []
    sizes: list[int] = []
    with TemporaryDirectory(prefix="robo-rl-dry-run-") as folder:
        sample = Path(folder) / store.path.resolve().name
        for episode in islice(store, 2):
            copytree(episode.path, sample / EPISODES / episode.path.name)
            (sample / DATASET_JSON).write_bytes((store.path / DATASET_JSON).read_bytes())
            converted = Path(folder) / "converted" / str(len(sizes))
            write(sample, converted)
            frames.append(episode.frames)
            sizes.append(bytes_of(converted))
    more = store.totals.frames - frames[0]  # each of these costs as much as a frame of the second episode
    return sizes[0] + (round((sizes[1] - sizes[0]) * more / frames[1]) if more else 0)


def bytes_of(path: Path) -> int:
    """Size of a file, or of all files in a folder."""
    return sum(each.stat().st_size for each in (path, *path.rglob("*")) if each.is_file())
