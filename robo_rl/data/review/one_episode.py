"""One episode of a dataset by its number."""

from __future__ import annotations

from pathlib import Path

from robo_rl.core.errors import DataError
from robo_rl.core.text.commands import command
from robo_rl.data.episodes.commit import numbers
from robo_rl.data.episodes.reader import Episode
from robo_rl.data.episodes.schema import EPISODES, DatasetMeta


def episode_at(path: str | Path, number: int) -> Episode:
    """Episode with this number. Raises DataError with the known numbers if there is none."""
    root = Path(path)
    dataset = DatasetMeta.load(root)
    there = numbers(root)
    if number not in there:
        known = f"numbers go from {there[0]} to {there[-1]}" if there else "it holds none"
        raise DataError(f"{path} has no episode {number}: {known}. See: {command('data list', path=path)}")
    return Episode(root / EPISODES / f"{number:06d}", dataset)
