"""Progress bars of all verbs; without a terminal (a log file, CI) occasional lines."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

LOG_INTERVAL_S = 20.0
_HIDDEN: ContextVar[bool] = ContextVar("hidden", default=False)


@contextmanager
def hidden() -> Iterator[None]:
    """Hide progress bars inside the block."""
    token = _HIDDEN.set(True)
    try:
        yield
    finally:
        _HIDDEN.reset(token)


def is_hidden() -> bool:
    """True inside a block of `hidden`."""
    return _HIDDEN.get()


def progress(total: int | None, label: str, unit: str, initial: int = 0) -> Any:
    """tqdm bar on stderr, for a `with` block. `.update(n)` advances it, `.set_postfix_str(text)` adds
    text.
    """
    from tqdm import tqdm

    watched = sys.stderr.isatty()
    return tqdm(
        total=total,
        desc=label,
        unit=unit,
        initial=initial,
        dynamic_ncols=True,
        mininterval=0.2 if watched else LOG_INTERVAL_S,
        leave=True,
        disable=_HIDDEN.get(),
        smoothing=0.1,
    )


def show(bar: Any) -> Callable[[int, int], None]:
    """Callback (done, total) that advances a bar whose total is unknown at the start."""

    def move(done: int, total: int) -> None:
        bar.total = total
        bar.update(done - bar.n)

    return move
