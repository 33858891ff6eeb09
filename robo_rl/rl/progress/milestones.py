"""Milestones of a successful episode, and labels of progress between them.

VLA-RL (Lu et al. 2025, 2505.18719) cuts successful episodes into sub-tasks where the gripper opens or closes,
and finds key frames in them where the end effector is nearly at rest. Here both are milestones, and progress
rises from 0 to 1 on straight lines between them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy import ndarray

from robo_rl.core.shapes import Float

LEAST_RANGE = 0.5  # of a gripper's commands in [-1, 1]: below it the gripper is not used
REST = 0.1  # speed of a key frame, as a fraction of the episode's mean speed
APART = 0.05  # of an episode: least time between two milestones


def gripper_changes(command: Float[ndarray, " n"], low: float, high: float) -> list[int]:
    """Steps at which the gripper's command goes to its other end.

    The command has changed where it reaches the outer quarter of low ... high on the other side; so noise and
    a third level in the middle are no change. low, high: extremes of all episodes, in [-1, 1].
    """
    if high - low < LEAST_RANGE:
        return []
    level = (np.asarray(command, np.float64) - low) / (high - low)
    side = np.where(level >= 0.75, 1, np.where(level <= 0.25, 0, -1))  # -1: in the middle
    known = np.flatnonzero(side >= 0)
    return [int(at) for before, at in pairwise(known) if side[at] != side[before]]


def key_frames(speed: Float[ndarray, " n"]) -> list[int]:
    """The slowest step of each rest: consecutive steps below `REST` times the mean speed. A rest at the start
    or at the end of the episode is none.
    """
    slow = np.concatenate([[False], np.asarray(speed) < REST * np.mean(speed), [False]])
    starts, ends = np.flatnonzero(slow[1:] & ~slow[:-1]), np.flatnonzero(slow[:-1] & ~slow[1:])
    return [
        int(start + np.argmin(speed[start:end]))
        for start, end in zip(starts, ends, strict=True)
        if start > 0 and end < len(speed)
    ]


def spaced(steps: Sequence[int], kept: Sequence[int], apart: float) -> list[int]:
    """Those of `steps`, in order, that are `apart` steps or more from `kept` and from those before them."""
    chosen: list[int] = []
    for step in sorted(steps):
        if all(abs(step - other) >= apart for other in (*kept, *chosen)):
            chosen.append(step)
    return chosen


def progress_labels(
    steps: int, changes: Sequence[int], rests: Sequence[int]
) -> tuple[Float[ndarray, " n1"], int]:
    """(progress of the steps + 1 observations of an episode, number of its milestones).

    changes: of the gripper. With S - 1 of them there are S stages, and stage s rises from s / S to
    (s + 1) / S. Key frames (`rests`) cut their stage into equal parts. Between milestones progress is linear
    in time. A milestone that is less than `APART` of the episode from another one is left out; changes of the
    gripper go first.
    """
    apart = APART * steps
    borders = [0, *spaced(changes, (0, steps), apart), steps]
    frames = spaced(rests, borders, apart)
    times, values = [0], [0.0]
    for stage, (start, end) in enumerate(pairwise(borders)):
        inside = [*(frame for frame in frames if start < frame < end), end]
        times += inside
        values += [(stage + (part + 1) / len(inside)) / (len(borders) - 1) for part in range(len(inside))]
    return np.interp(np.arange(steps + 1), times, values), len(times) - 2
