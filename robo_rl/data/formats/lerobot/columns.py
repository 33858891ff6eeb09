"""Columns of parquet tables: NumPy arrays to Arrow and back, and statistics as LeRobot keeps them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy import ndarray

from robo_rl.core.errors import DataError
from robo_rl.core.shapes import Shaped
from robo_rl.data.formats.lerobot.layout import LeRobotFeature, pyarrow

QUANTILES = {"q01": 0.01, "q10": 0.1, "q50": 0.5, "q90": 0.9, "q99": 0.99}


def to_arrow(values: Shaped[ndarray, "n ..."]) -> Any:
    """Arrow column: a scalar per row, or nested lists."""
    pa, _ = pyarrow()
    flat = values.reshape(len(values), -1)
    if values.ndim == 1 or (values.ndim == 2 and values.shape[1] == 1):
        return pa.array(np.ascontiguousarray(flat[:, 0]))
    column = pa.array(np.ascontiguousarray(values).reshape(-1))
    for size in reversed(values.shape[2:]):
        column = pa.ListArray.from_arrays(_offsets(len(column) // size, size), column)
    if values.ndim == 2:
        return pa.FixedSizeListArray.from_arrays(column, values.shape[1])
    return pa.ListArray.from_arrays(_offsets(len(values), values.shape[1]), column)


def _offsets(rows: int, size: int) -> Any:
    pa, _ = pyarrow()
    return pa.array(np.arange(rows + 1, dtype=np.int32) * np.int32(size))


def from_arrow(column: Any, feature: LeRobotFeature, where: str) -> Shaped[ndarray, "n ..."]:
    """Rows of a column in the shape and type of its feature. Raises DataError if they do not fit."""
    pa, _ = pyarrow()
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    rows = len(array)
    while pa.types.is_list(array.type) or pa.types.is_fixed_size_list(array.type) or _large(array.type):
        array = array.flatten()
    if not (pa.types.is_primitive(array.type)) or array.null_count:
        raise DataError(f"{where}: '{feature.name}' holds {array.type}, or gaps; numbers were expected.")
    values = array.to_numpy(zero_copy_only=False)
    try:
        return np.asarray(values.reshape(rows, *feature.shape), dtype=feature.dtype)
    except (ValueError, TypeError) as error:
        raise DataError(
            f"{where}: '{feature.name}' has {values.size} numbers in {rows} rows, its feature states "
            f"{feature.dtype}{list(feature.shape)}. Write the dataset again."
        ) from error


def _large(kind: Any) -> bool:
    pa, _ = pyarrow()
    return bool(pa.types.is_large_list(kind))


def statistics(values: Shaped[ndarray, "n ..."], count: int | None = None) -> dict[str, list[Any]]:
    """Smallest, largest, mean, standard deviation, quantiles and number of rows, per element."""
    rows = np.asarray(values.reshape(len(values), -1) if values.ndim == 1 else values, dtype=np.float64)
    if not np.isfinite(rows).all():  # JSON has no such numbers: statistics are those of the others
        rows = np.where(np.isfinite(rows), rows, np.nan)
        rows = np.where(np.isnan(rows).all(axis=0), 0.0, rows)
    found: dict[str, Any] = {
        "min": np.nanmin(rows, axis=0),
        "max": np.nanmax(rows, axis=0),
        "mean": np.nanmean(rows, axis=0),
        "std": np.nanstd(rows, axis=0),
    }
    levels = np.nanquantile(rows, list(QUANTILES.values()), axis=0)
    found |= dict(zip(QUANTILES, levels, strict=True))
    return {name: each.tolist() for name, each in found.items()} | {"count": [count or len(rows)]}


def picture_statistics(images: Shaped[ndarray, "n h w c"], count: int) -> dict[str, list[Any]]:
    """Statistics of images per channel, in [0, 1] and of shape (c, 1, 1)."""
    pixels = images.reshape(-1, images.shape[-1]) / 255.0
    found = statistics(pixels, count)
    return {k: v if k == "count" else [[[each]] for each in v] for k, v in found.items()}
