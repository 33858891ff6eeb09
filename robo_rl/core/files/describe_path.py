"""Description of a path for error messages, e.g. a run that was given instead of a dataset."""

from __future__ import annotations

from pathlib import Path

from robo_rl.core.files.path_error import dangling
from robo_rl.core.text.nearest import nearest

_MOST_NAMES = 5  # names of a folder's content in a message
_MARKS = (  # the first file that exists decides
    ("dataset.json", "a dataset"),
    ("manifest.json", "a bundle"),
    ("run.json", "a run"),
    ("policy.json", "a policy folder"),
    ("meta/info.json", "a LeRobot dataset"),
    ("features.json", "an RLDS dataset"),
    ("robo_rl.json", "an export as MCAP"),
    (".zgroup", "a zarr v2 group"),
    ("episodes/zarr.json", "the copy of a dataset that lacks a part"),
)
IMPORTABLE = frozenset({"a LeRobot dataset", "an RLDS dataset", "an export as MCAP", "a zarr v2 group"})


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


def is_importable(path: Path) -> bool:
    """True for a dataset of another program, which `robo-rl data import` may read."""
    described = describe_path(path)
    return described.removeprefix("is ") in IMPORTABLE or (
        described == "is a file" and path.suffix in (".hdf5", ".h5", ".mcap")
    )


def not_a(path: Path, kind: str, mark: str = "") -> str:
    """Sentence on a path that is not of this kind, e.g. "runs/a is a run, not a dataset."

    mark: file that it lacks, to be named. For a path that does not exist, the sentence names the nearest
    existing folder and what is there, or the link whose target is missing.
    """
    if path.exists():
        lacks = f": it holds no {mark}" if mark and path.is_dir() else ""
        return f"{path} {describe_path(path)}, not {kind}{lacks}."
    return dangling(path) or f"{path} does not exist; {_nearest_folder(path)}."


def _nearest_folder(path: Path) -> str:
    """The nearest existing parent and the names in it that are most like the missing one."""
    missing, folder = path, path.parent
    while not folder.is_dir() and folder != folder.parent:
        missing, folder = folder, folder.parent
    if not folder.is_dir():
        return f"nor does {folder}"
    try:
        names = sorted(each.name for each in folder.iterdir() if not each.name.startswith("."))
    except OSError:
        names = []
    shown = nearest(missing.name, names, _MOST_NAMES) or names
    more = f" and {len(shown) - _MOST_NAMES} more" if len(shown) > _MOST_NAMES else ""
    listed = ", ".join(shown[:_MOST_NAMES]) + more
    where = folder.resolve() if folder == Path() else folder
    return f"the nearest existing folder is {where}, {f'with {listed}' if names else 'which is empty'}"
