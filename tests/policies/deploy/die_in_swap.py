"""Replaces bundles in forks that are killed before or after each step on the disk.

`<root>/<n>/button` is replaced by the folder next to it, in a fork that dies at step n. Prints how each fork
ended.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import policies.deploy.bundle_writer as bundle_module

NEW = ".button.partial.1234567890"  # of a process that does not exist


def swap(new: Path, folder: Path, at: int, atomic: bool) -> None:
    """at: which step; atomic=False as on a file system that cannot exchange two names."""
    steps = count()

    def dying(call: Callable[..., Any]) -> Callable[..., Any]:
        def step(*args: Any, **kwargs: Any) -> Any:
            for act in (lambda: None, lambda: call(*args, **kwargs)):
                done = act()
                if next(steps) == at:
                    os.kill(os.getpid(), signal.SIGKILL)
            return done

        return step

    Path.replace = dying(Path.replace)  # type: ignore[method-assign]
    shutil.rmtree = dying(shutil.rmtree)
    bundle_module.exchange = dying(bundle_module.exchange if atomic else lambda one, other: False)
    bundle_module._swap(new, folder)


def main(root: Path, atomic: bool) -> None:
    for at in range(len(list(root.iterdir()))):
        place = root / str(at)
        child = os.fork()
        if child == 0:
            swap(place / NEW, place / "button", at, atomic)
            os._exit(0)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2] == "atomic")
