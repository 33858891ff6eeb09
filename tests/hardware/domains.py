"""DDS domains for tests: one per test, though several runs share the machine."""

from __future__ import annotations

import fcntl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

DOMAINS = range(20, 101)  # above those that people use, below those whose ports the kernel gives away


@contextmanager
def free_domain() -> Iterator[int]:
    """A domain locked for this test until the end of the block; the lock ends with the process."""
    folder = Path(tempfile.gettempdir()) / "robo-rl-test-domains"
    folder.mkdir(exist_ok=True)
    for domain in DOMAINS:
        with (folder / str(domain)).open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                continue
            yield domain
            return
    raise RuntimeError("All DDS domains for tests are taken.")
