"""Parquet tables and JSON lines of a LeRobot dataset."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from robo_rl.core.errors import DataError
from robo_rl.core.files.durable import read_regular
from robo_rl.data.formats.lerobot import layout


def read_table(path: Path, columns: list[str] | None) -> Any:
    """A parquet table. Raises DataError if it is missing, truncated or another format."""
    pa, pq = layout.pyarrow()
    try:
        return pq.read_table(path, columns=columns)
    except FileNotFoundError as error:
        raise _missing(path) from error
    except (pa.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0]
        if reason.startswith("No match for FieldRef"):
            raise DataError(
                f"{path} lacks one of the columns {', '.join(columns or ())}. Copy the dataset again."
            ) from error
        raise DataError(
            f"{path} cannot be read ({reason}). It is truncated, as after a recording "
            "that was killed, or still being written: copy the dataset again, or restore it."
        ) from error


def column_of(table: Any, name: str, where: str) -> Any:
    """A column of a table. Raises DataError if it has none of this name."""
    if name not in table.column_names:
        raise DataError(f"{where} has no column '{name}'. Copy the dataset again.")
    return table[name]


def read_json_lines(path: Path) -> list[dict[str, Any]]:
    """JSON objects of a file with one a line. Raises DataError if it is missing or broken."""
    try:
        lines = read_regular(path).split("\n")
    except (FileNotFoundError, NotADirectoryError) as error:
        raise _missing(path) from error
    except (UnicodeDecodeError, IsADirectoryError) as error:
        raise DataError(f"{path} is broken ({error}). Copy the dataset again.") from error
    return [_json_object(line, f"{path}, line {i}") for i, line in enumerate(lines, start=1) if line.strip()]


def _json_object(line: str, where: str) -> dict[str, Any]:
    try:
        found = json.loads(line)
        if isinstance(found, dict):
            return found
        error: Exception = ValueError("expected an object")
    except (ValueError, RecursionError) as raised:
        error = raised
    raise DataError(f"{where}, is broken ({error}). Copy the dataset again.") from error


def _missing(path: Path) -> DataError:
    return DataError(f"{path} is missing. Copy the dataset again.")
