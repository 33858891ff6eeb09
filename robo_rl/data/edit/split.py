"""Cutting one episode into two."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy import ndarray

from robo_rl.core.shapes import Shaped
from robo_rl.data.episodes.reader import Episode
from robo_rl.data.episodes.reward_marks import split_marks
from robo_rl.data.episodes.rewrite import write_array, write_meta
from robo_rl.data.episodes.schema import CONTINUES, JPEG_ENDS, SPLIT, EpisodeMeta


def split_episode(whole: Episode, frame: int, first: Path, second: Path) -> None:
    """Write the frames before `frame` to the folder `first`, the others to `second`.

    The observation at `frame` is the final one of the first part. Images are copied byte for byte. The first
    part keeps the seed of the reset, the second the label of success; each keeps the reward marks of its
    frames. A failure is kept by both, because the first part may hold its cause; a success is not yet
    reached in the first part, which `Episode.continues` tells from an episode without a label.
    """
    cut = {"episode": whole.number, "frame": frame}
    info, cut_before, cut_after = whole.meta.info, cut | {CONTINUES: True}, cut | {CONTINUES: whole.continues}
    marks_before, marks_after = split_marks(whole.meta, frame)
    failed = False if whole.success is False else None
    before = replace(
        whole.meta, success=failed, complete=True, info={**info, SPLIT: cut_before, **marks_before}
    )
    after = replace(whole.meta, seed=None, info={**info, SPLIT: cut_after, **marks_after})
    _write_part(whole, 0, frame, first, before)
    _write_part(whole, frame, whole.frames, second, after)


def _write_part(whole: Episode, start: int, stop: int, folder: Path, meta: EpisodeMeta) -> None:
    final = stop < whole.frames or whole.has_final_obs
    rows = {
        column.name: _rows(whole, column.name, column.role, start, stop, final)
        for column in whole.dataset.columns()
    }
    folder.mkdir(exist_ok=True)
    arrays = {name: write_array(folder / name, array) for name, array in rows.items()}
    write_meta(folder, replace(meta, frames=stop - start, final_obs=final, arrays=arrays))


def _rows(
    whole: Episode, name: str, role: str, start: int, stop: int, final: bool
) -> Shaped[ndarray, "n ..."]:
    """Rows of one array for the frames [start, stop), with a final observation if `final`."""
    last = stop + final
    if role == "blob":
        ends = whole.jpeg_ends(name)
        return whole.array(name)[ends[start] : ends[last]]
    if name == JPEG_ENDS:
        borders = [whole.jpeg_ends(key) for key in whole.dataset.jpeg_keys]
        return np.stack([ends[start + 1 : last + 1] - ends[start] for ends in borders], axis=1)
    return whole.array(name)[start : last if role == "obs" else stop]
