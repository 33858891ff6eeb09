"""Progress bars of all verbs; without a terminal (a log file, CI) occasional lines."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
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


@contextmanager
def counting(bar: Any, doing: str, total: int, unit: str) -> Iterator[Callable[[int], None]]:
    """Count work inside a bar's step beside the bar: "evaluating, 20/50 episodes". Yields a callback that
    takes the number just done; the text before comes back at the end.
    """
    before, done, shown_s = getattr(bar, "postfix", None) or "", 0, -math.inf

    def add(count: int) -> None:
        nonlocal done, shown_s
        done = min(total, done + count)  # all environments take the last step together
        bar.set_postfix_str(f"{doing}, {done}/{total} {unit}", refresh=False)
        if not bar.disable and (now_s := time.monotonic()) - shown_s >= bar.mininterval:
            bar.refresh()  # `update` draws nothing while the bar itself stands
            shown_s = now_s

    add(0)
    try:
        yield add
    finally:
        bar.set_postfix_str(before, refresh=False)


@contextmanager
def progress_callback(label: str, unit: str) -> Iterator[Callable[[int, int], None]]:
    """Callback (done, total) for work that knows its total late. The bar appears at the first call, so that
    bad input ends in its message alone.
    """
    with ExitStack() as stack:
        bar: Any = None

        def move(done: int, total: int) -> None:
            nonlocal bar
            if bar is None:
                bar = stack.enter_context(progress(total, label, unit))
            bar.update(done - bar.n)

        yield move
