"""Reward marks: judgements of single frames that an operator gave by key or button while recording.

They are kept in episode.json under info.reward_marks, with author and time, beside the label of the episode.
The column `reward` does not contain them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy import ndarray

from robo_rl.core.errors import DataError
from robo_rl.core.shapes import Float
from robo_rl.data.episodes.schema import EpisodeMeta

REWARD_MARKS = "reward_marks"  # key of EpisodeMeta.info


@dataclass(frozen=True, slots=True)
class RewardMark:
    """reward: e.g. 1 or -1. at: time of the mark, as 2026-01-31T12:00:00Z."""

    frame: int
    reward: float
    by: str = ""
    at: str = ""


def reward_marks(meta: EpisodeMeta) -> list[RewardMark]:
    """Marks of an episode, oldest first. Raises DataError for an entry that is none."""
    found = meta.info.get(REWARD_MARKS, [])
    try:
        marks = [RewardMark(int(m["frame"]), float(m["reward"]), str(m["by"]), str(m["at"])) for m in found]
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"info.{REWARD_MARKS} of an episode is broken ({error!r}): correct it.") from error
    if wrong := [mark for mark in marks if mark.frame < 0 or not math.isfinite(mark.reward)]:
        raise DataError(f"info.{REWARD_MARKS} of an episode is broken: {wrong[0]}.")
    return marks


def marked_reward(meta: EpisodeMeta) -> Float[ndarray, " frames"]:
    """Sum of the marks of each frame; a mark after the last frame counts for the last one."""
    reward = np.zeros(meta.frames, dtype=np.float32)
    for mark in reward_marks(meta) if meta.frames else ():
        reward[min(mark.frame, meta.frames - 1)] += mark.reward
    return reward


def split_marks(meta: EpisodeMeta, frame: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Entry of `info` with the marks before `frame`, and one with the others, counted from `frame`; empty
    where the episode has none.
    """
    if REWARD_MARKS not in meta.info:
        return {}, {}
    marks = reward_marks(meta)
    before = [asdict(mark) for mark in marks if mark.frame < frame]
    after = [asdict(replace(mark, frame=mark.frame - frame)) for mark in marks if mark.frame >= frame]
    return {REWARD_MARKS: before}, {REWARD_MARKS: after}


def with_mark(info: Mapping[str, Any], mark: RewardMark) -> dict[str, Any]:
    """`info` with one more mark."""
    return {**info, REWARD_MARKS: [*info.get(REWARD_MARKS, []), asdict(mark)]}
