"""Environment variables of processes that a launcher starts."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager


@contextmanager
def environment_variables(
    usual: Mapping[str, str], own: Mapping[str, str] | None = None, restored: tuple[str, ...] = ()
) -> Iterator[None]:
    """Variables for the processes that start in the block, which inherit them. Afterwards all are as before.

    usual: the user's own values stay. own: theirs are replaced. restored: further variables that the block
    may change.
    """
    own = own or {}
    before = {name: os.environ.get(name) for name in (*usual, *own, *restored)}
    for name, value in usual.items():
        os.environ.setdefault(name, value)
    os.environ.update(own)
    try:
        yield
    finally:
        for name, old in before.items():
            if old is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = old
