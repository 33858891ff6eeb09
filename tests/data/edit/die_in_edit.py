"""Run by test_edit_kill.py: kill an edit at its k-th disk call, and inspect the dataset.

python -m tests.data.edit.die_in_edit <folder> <edit> <stride> <exchange> runs k from 1 in steps of `stride`
until the edit survives, and prints one JSON object per k.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from shutil import copytree, rmtree
from typing import Any

from hardware.checks.faulty_disk import Moment, killed_at
from robo_rl.data.edit import swap
from robo_rl.data.edit.changes import delete_episodes, relabel_episodes, split_at, undo
from robo_rl.data.edit.listing import list_episodes
from robo_rl.data.validate import validate
from tests.data.recordings import STATE_ENV, record

CALLS = ("write", "ftruncate", "mkdir", "rename", "replace", "unlink", "link", "rmdir", "open", "fsync")
EDITS: dict[str, Callable[[Path], Any]] = {
    "delete": lambda path: delete_episodes(path, [0]),
    "relabel": lambda path: relabel_episodes(path, [0], success=None),
    "split": lambda path: split_at(path, 0, 1),
    "undo": undo,
}


def _state(path: Path) -> list[tuple[int, int, bool | None, str]]:
    return [(row.number, row.frames, row.success, row.fault) for row in list_episodes(path)]


def main(folder: Path, edit: str, stride: int, can_exchange: bool) -> None:
    if not can_exchange:
        swap.exchange = lambda *_: False  # type: ignore[assignment]
    os.sync = lambda: None
    path, clean = folder / "set", folder / "clean"
    record(path, [3, 2], env=STATE_ENV)
    delete_episodes(path, [1])  # so that there is a former state already
    old = _state(path)
    copytree(folder, folder.with_name("start"))
    EDITS[edit](path)
    new = _state(path)
    k, died = 1 - stride, True
    while died:
        k += stride
        rmtree(folder)
        copytree(folder.with_name("start"), folder)
        moment: Moment = "after" if k % 2 else "before"
        died = killed_at(k, partial(EDITS[edit], path), CALLS, moment, [(swap, "exchange")])
        gone = not path.exists()
        swap.finish(path)
        found = _state(path)
        result = {
            "k": k,
            "died": died,
            "gone": gone,
            "state": "old" if found == old else "new" if found == new else str(found),
            "faults": [str(fault) for fault in validate(path) if fault.severity == "error"],
            "left": sorted(each.name for each in folder.iterdir()),
        }
        undo(path)
        undo(path)
        print(json.dumps({**result, "again": _state(path) == found}), flush=True)
    assert not clean.exists()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4] == "True")
