"""Description of a path for error messages, e.g. a run that was given instead of a dataset."""

from __future__ import annotations

from pathlib import Path

_MARKS = (  # the first file that exists decides
    ("dataset.json", "a dataset"),
    ("manifest.json", "a bundle"),
    ("run.json", "a run"),
    ("policy.json", "a policy folder"),
    (".zgroup", "a zarr v2 group"),
)


def describe_path(path: Path) -> str:
    """Predicate for a path, e.g. "does not exist", "is a file", "is a run", "is a folder of unknown
    content".
    """
    if not path.exists():
        return "does not exist"
    if not path.is_dir():
        return "is a file"
    if (found := next((kind for mark, kind in _MARKS if (path / mark).is_file()), None)) is not None:
        return f"is {found}"
    return "is a folder of unknown content" if any(path.iterdir()) else "is an empty folder"
