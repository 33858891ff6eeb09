"""Check for episodes unfit for training: damaged arrays, values that are not finite, actions far outside
limits.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy import ndarray

from robo_rl.core.errors import DataError
from robo_rl.core.shapes import Shaped
from robo_rl.core.spec import ActionSpec
from robo_rl.core.text.instruction import INSTRUCTION
from robo_rl.data.checks import schema_faults
from robo_rl.data.episodes.reader import Episode
from robo_rl.data.episodes.shard import row_bytes
from robo_rl.data.windows import TABLE_ROW_BYTES

# distance from a limit in ranges; more is a wrong unit or a damaged number, not rounding or overshoot
FAR = 1.0
_BLOCK_BYTES = 1 << 26
_LOOK = "Find all faults with robo-rl data validate, then restore or delete the episode."


def check_episodes(episodes: Iterable[Episode]) -> None:
    """Raise DataError for the first episode that is unfit for training.

    Arrays must have the shapes and types of the dataset, numbers must be finite, and no action may be further
    than `FAR` times its range outside the limits. Depth images and point clouds are not read.
    """
    for episode in episodes:
        where = f"Episode {episode.number:06d} in {episode.path.parent.parent}"
        for column in episode.dataset.columns():
            if column.name == INSTRUCTION and episode.task_is_instruction:
                continue
            if column.name not in episode.meta.arrays:
                raise DataError(f"{where} has no array '{column.name}'. {_LOOK}")
            for fault in schema_faults(episode, column, episode.meta.arrays[column.name]):
                raise DataError(f"{where} does not fit its dataset: {fault.fault} {_LOOK}")
        for column in episode.dataset.columns():
            small = row_bytes(column.dtype, column.row_shape) < TABLE_ROW_BYTES
            if column.dtype.startswith("float") and small:
                check_finite(episode.array(column.name), f"{where}: '{column.name}'", _LOOK)
        check_action(episode.action, episode.dataset.env.action, where, _LOOK)


def check_finite(values: Shaped[ndarray, "n ..."], where: str, advice: str) -> None:
    """Raise DataError that names the first row with a value that is not finite."""
    if values.dtype.kind != "f":
        return
    step = max(1, _BLOCK_BYTES // max(1, values[:1].nbytes))
    for start in range(0, len(values), step):
        block = values[start : start + step]
        if not np.isfinite(block).all():
            row = start + int((~np.isfinite(block).reshape(len(block), -1).all(axis=1)).argmax())
            raise DataError(f"{where} is not finite in row {row}. {advice}")


def check_action(action: Shaped[ndarray, "n a"], spec: ActionSpec, where: str, advice: str) -> None:
    """Raise DataError that names the first action far outside the limits. Actions must be finite."""
    low, high = np.array(spec.low), np.array(spec.high)
    far = (action < low - FAR * (high - low)) | (action > high + FAR * (high - low))
    if far.any():
        frame, dim = np.argwhere(far)[0].tolist()
        raise DataError(
            f"{where}: dimension {dim} of the action is {float(action[frame, dim]):.4g} in frame "
            f"{frame}, far outside its limits {spec.low[dim]:g} to {spec.high[dim]:g}. {advice}"
        )
