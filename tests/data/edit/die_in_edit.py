"""Run by test_edit_kill.py: kill an edit at its k-th disk call, and inspect the dataset.

python -m tests.data.edit.die_in_edit <folder> <edit> <stride> <exchange> runs k from 1 in steps of `stride`
until the edit survives, and prints one JSON object per k.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from shutil import copytree, rmtree
from typing import Any

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


def _die_at(k: int) -> None:
    """Let the k-th disk call from now on never return; every second kill comes right after the call."""
    count = 0

    def wrap(call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **kwargs: Any) -> Any:
            nonlocal count
            count += 1
            if count == k:
                if k % 2:
                    call(*args, **kwargs)
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*args, **kwargs)

        return counted

    for name in CALLS:
        setattr(os, name, wrap(getattr(os, name)))
    swap.exchange = wrap(swap.exchange)  # type: ignore[assignment]
    os.sync = lambda: None


def _state(path: Path) -> list[tuple[int, int, bool | None, str]]:
    return [(row.number, row.frames, row.success, row.fault) for row in list_episodes(path)]


def main(folder: Path, edit: str, stride: int, can_exchange: bool) -> None:
    if not can_exchange:
        swap.exchange = lambda *_: False  # type: ignore[assignment]
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
        if (pid := os.fork()) == 0:
            _die_at(k)
            EDITS[edit](path)
            os._exit(0)
        died = os.waitpid(pid, 0)[1] != 0
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
