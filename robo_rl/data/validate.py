"""Validation of a dataset: every fault with its episode and a remedy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from robo_rl.core.errors import DataError
from robo_rl.core.spec import EnvSpec, image_fault
from robo_rl.core.text.commands import command
from robo_rl.core.text.counts import counted
from robo_rl.data.checks import Fault, episode_faults
from robo_rl.data.edit.log import deleted_numbers
from robo_rl.data.episodes.commit import LOCK, numbers
from robo_rl.data.episodes.reader import Episode
from robo_rl.data.episodes.schema import DATASET_JSON, EPISODES, STAGING, ZARR_JSON, DatasetMeta
from robo_rl.data.repeats import RepeatedEpisodes

__all__ = ["Fault", "validate"]


def validate(path: str | Path, progress: Callable[[int, int], None] | None = None) -> list[Fault]:
    """All faults, first those of the dataset, then by episode; an empty list for a valid dataset.

    Reads every byte once (checksums). Contents of the dataset never raise. progress: called with (episodes
    done, episodes).
    """
    root = Path(path)
    try:
        meta = DatasetMeta.load(root)
    except DataError as error:
        return [Fault(None, str(error), f"Give the folder that holds {DATASET_JSON}.", "foreign_format")]
    for folder in (EPISODES, STAGING):
        if not (root / folder).is_dir():
            advice = f"Restore it from a copy; an empty one is made by: {command('data repair', path=path)}"
            return [Fault(None, f"The folder {folder}/ is missing.", advice, "missing_folder")]
    faults = [*_contract(meta.env), *_numbering(root), *_staging(root)]
    spread, repeats = _ActionSpread(meta.env.action.dim), RepeatedEpisodes()
    found = numbers(root)
    for i, number in enumerate(found):
        faults += _check_episode(root / EPISODES / f"{number:06d}", meta, spread, repeats)
        if progress is not None:
            progress(i + 1, len(found))
    return [*faults, *repeats.faults(), *spread.faults()]


def _check_episode(
    path: Path, meta: DatasetMeta, spread: _ActionSpread, repeats: RepeatedEpisodes
) -> list[Fault]:
    try:
        episode = Episode(path, meta)
    except DataError as error:
        advice = "The other episodes can be read."
        return [Fault(int(path.name), str(error), advice, "broken_episode_json")]
    faults = list(episode_faults(episode))
    if not any(fault.severity == "error" for fault in faults):
        spread.add(episode)
        repeats.add(episode)
    return faults


def _contract(env: EnvSpec) -> Iterator[Fault]:
    """Pictures that no writer accepts today and no policy trains on; older writers took images of floats and
    depths of integers.
    """
    for key, array in env.obs.items():
        if fault := image_fault(key, array):
            wanted = "images to uint8" if key.startswith("image.") else "depths to float32 in metres"
            advice = f"Read the episodes, convert these {wanted}, and write them with DatasetWriter."
            yield Fault(None, fault, advice, "wrong_image")


def _numbering(root: Path) -> Iterator[Fault]:
    strays = sorted(p.name for p in (root / EPISODES).iterdir() if not _is_episode(p) and p.name != ZARR_JSON)
    if strays:
        text = f"{EPISODES}/ holds {strays[:5]}, which are not episodes."
        yield Fault(None, text, "Move them elsewhere.", "stray_entry", "warning")
    found, deleted = numbers(root), set[int]()
    try:
        deleted = deleted_numbers(root)
    except DataError as error:
        yield Fault(None, str(error), "", "broken_edits", "warning")
    if gaps := sorted(set(range(max(found, default=-1) + 1)) - set(found) - deleted):
        text = f"Episodes {gaps[:10]} are missing: numbers go from 0 to {found[-1]}, {len(found)} are there."
        yield Fault(
            None,
            text,
            "Correct if you deleted them; otherwise restore them from a copy.",
            "numbering_gap",
            "warning",
        )


def _is_episode(path: Path) -> bool:
    return path.is_dir() and path.name.isdecimal() and len(path.name) >= 6


def _staging(root: Path) -> Iterator[Fault]:
    waiting = sorted(p.name for p in (root / STAGING).iterdir() if p.name != LOCK)
    if waiting:
        were = "was interrupted, or is" if len(waiting) == 1 else "were interrupted, or are"
        text = f"{counted(len(waiting), 'episode')} in {STAGING}/ {were} being recorded now ({waiting[0]})."
        yield Fault(
            None, text, "Stop the recorder, then validate with recover=true.", "leftover_staging", "warning"
        )


class _ActionSpread:
    """Smallest and largest action over all valid episodes, to find constant dimensions."""

    def __init__(self, dim: int) -> None:
        self.low, self.high, self.frames = np.full(dim, np.inf), np.full(dim, -np.inf), 0

    def add(self, episode: Episode) -> None:
        action = episode.action
        self.low, self.high = (
            np.minimum(self.low, action.min(axis=0)),
            np.maximum(self.high, action.max(axis=0)),
        )
        self.frames += episode.frames

    def faults(self) -> Iterator[Fault]:
        constant = np.flatnonzero(self.low == self.high).tolist()
        if self.frames > 1 and constant:
            text = f"Action dimensions {constant} have the same value in all {self.frames} frames."
            yield Fault(
                None, text, "Leave them out of the action, or check the driver.", "constant_action", "warning"
            )
