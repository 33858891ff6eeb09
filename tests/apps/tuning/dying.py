"""Simulated kill at a chosen call: an uncaught exception leaves the same files as SIGKILL, because every log
line reaches the kernel when it is written.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Killed(BaseException):
    """Not caught by any code."""


def dying(function: Callable[..., Any], call: int, after: bool = False) -> Callable[..., Any]:
    """`function` that dies after, or instead of, its `call`-th call."""
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
