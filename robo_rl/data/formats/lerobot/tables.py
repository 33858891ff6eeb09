"""Parquet tables of a LeRobot dataset."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from robo_rl.core.errors import DataError
from robo_rl.data.formats.lerobot import layout


def read_table(path: Path, columns: list[str] | None) -> Any:
    """A parquet table. Raises DataError if it is missing, truncated or another format."""
    pa, pq = layout.pyarrow()
    try:
        return pq.read_table(path, columns=columns)
    except FileNotFoundError as error:
        raise DataError(f"{path} is missing. Copy the dataset again.") from error
    except (pa.ArrowException, OSError) as error:
        raise DataError(
            f"{path} cannot be read ({str(error).splitlines()[0]}). It is truncated, as after a recording "
            "that was killed, or still being written: copy the dataset again, or restore it."
        ) from error
