"""A kill at a chosen call: an exception that nothing catches leaves on disk what SIGKILL leaves, because
every line of the log reaches the kernel when it is written.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Killed(BaseException):
    """Nobody catches this."""


def dying(function: Callable[..., Any], call: int, after: bool = False) -> Callable[..., Any]:
    """`function`, whose `call`-th call is the last thing that happens, or the first thing that does not."""
    calls = 0

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == call and not after:
            raise Killed
        result = function(*args, **kwargs)
        if calls == call:
            raise Killed
        return result

    return wrapped
