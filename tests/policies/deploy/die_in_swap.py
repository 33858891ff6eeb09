"""Replaces bundles in forks that are killed before or after each step on the disk.

`<root>/<n>/button` is replaced by the folder next to it, in a fork that dies at step n. Prints how each fork
ended.
"""

from __future__ import annotations

import shutil
import signal
import sys
from functools import partial
from pathlib import Path

import policies.deploy.bundle_writer as bundle_module
from hardware.checks.faulty_disk import killed_at

NEW = ".button.partial.1234567890"  # of a process that does not exist


STEPS = ((Path, "replace"), (shutil, "rmtree"), (bundle_module, "exchange"))


def main(root: Path, atomic: bool) -> None:
    """atomic=False: as on a file system that cannot exchange two names."""
    if not atomic:
        bundle_module.exchange = lambda one, other: False
    for at in range(len(list(root.iterdir()))):
        place = root / str(at)
        work = partial(bundle_module._swap, place / NEW, place / "button")
        died = killed_at(at // 2 + 1, work, [], "after" if at % 2 else "before", STEPS)
        print(-signal.SIGKILL if died else 0, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2] == "atomic")
