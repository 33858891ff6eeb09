"""Log of a dataset's edits: edits.jsonl, one JSON object per edit, oldest first."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from robo_rl.core.errors import DataError
from robo_rl.core.files.durable import read_regular
from robo_rl.data.episodes.commit import numbers
from robo_rl.data.episodes.schema import EPISODE_JSON, EPISODES

EDITS = "edits.jsonl"


def read_edits(root: Path) -> list[dict[str, Any]]:
    """Entries of the log; an empty list for a dataset that was never edited. Raises DataError for a broken
    one.
    """
    path = root / EDITS
    if not path.exists():
        return []
    try:
        entries = [json.loads(line) for line in read_regular(path).splitlines()]
    except (ValueError, OSError, RecursionError) as error:
        raise DataError(
            f"{path} is broken: {error}. Delete it: it only lists earlier edits, the episodes do not need it."
        ) from error
    return [entry for entry in entries if isinstance(entry, dict)]


def deleted_numbers(root: Path) -> set[int]:
    """Numbers of the episodes that edits have deleted."""
    entries = [entry for entry in read_edits(root) if entry.get("edit") == "delete"]
    return {n for entry in entries for n in entry.get("episodes", ()) if isinstance(n, int)}


def append_edit(root: Path, entry: Mapping[str, Any], before: str) -> None:
    """Add an entry with its time and both states. `root` is a copy that no reader sees yet."""
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    new = {**entry, "at": at, "before": before, "after": state_of(root)}
    lines = [json.dumps(line) for line in [*read_edits(root), new]]
    path = root / EDITS
    path.unlink(missing_ok=True)  # it may be a hard link
    path.write_text("".join(line + "\n" for line in lines))


def state_of(root: Path) -> str:
    """Checksum of the numbers and labels of all episodes, to see whether a dataset changed after an edit."""
    digest = hashlib.sha256()
    for number in numbers(root):
        digest.update(f"{number}:".encode())
        path = root / EPISODES / f"{number:06d}" / EPISODE_JSON
        digest.update(path.read_bytes() if path.is_file() else b"missing")
    return digest.hexdigest()[:16]
