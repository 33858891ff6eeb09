"""Episodes of a dataset, one row each, for `robo-rl data list` and the recording app."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from robo_rl.core.errors import DataError
from robo_rl.data.episodes.commit import numbers
from robo_rl.data.episodes.reader import Episode
from robo_rl.data.episodes.schema import EPISODES, DatasetMeta


@dataclass(frozen=True, slots=True)
class EpisodeRow:
    """Facts on one episode. fault: why it cannot be read, else empty; the other facts are then unknown."""

    number: int
    frames: int = 0
    seconds: float = 0.0
    success: bool | None = None
    complete: bool = False
    task: str = ""
    operator: str = ""
    recorded_at: str = ""
    interventions: int = 0  # number of parts in which a human acted, all of a recording by hand being one
    intervention_frames: int = 0
    bytes: int = 0
    fault: str = ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def list_episodes(path: str | Path) -> list[EpisodeRow]:
    """Rows of all committed episodes, by number. Raises DataError if `path` is no dataset.

    An episode that cannot be read has a row with its fault. Only small files are read.
    """
    root = Path(path)
    dataset = DatasetMeta.load(root)
    return [_row(root / EPISODES / f"{number:06d}", dataset) for number in numbers(root)]


def _row(path: Path, dataset: DatasetMeta) -> EpisodeRow:
    size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    try:
        episode = Episode(path, dataset)
        human = np.asarray(episode.intervention)
    except DataError as error:
        return EpisodeRow(int(path.name), bytes=size, fault=str(error))
    meta = episode.meta
    begins = np.flatnonzero(human & ~np.concatenate([[False], human[:-1]]))
    return EpisodeRow(
        number=episode.number,
        frames=meta.frames,
        seconds=meta.frames / dataset.env.control_hz,
        success=meta.success,
        complete=meta.complete,
        task=meta.task,
        operator=meta.operator,
        recorded_at=meta.recorded_at,
        interventions=len(begins),
        intervention_frames=int(human.sum()),
        bytes=size,
    )
