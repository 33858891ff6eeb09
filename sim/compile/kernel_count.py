"""Numbers of the kernels that a program compiles, for its messages: "1 of at most 3"."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_seen: set[Path] = set()  # kernels of this program so far, also those from disk
_most: list[int] = []  # how many the program needs, of the innermost `kernels_expected`


@contextmanager
def kernels_expected(most: int) -> Iterator[None]:
    """Context manager in which at most `most` kernels are needed; the count starts anew."""
    _seen.clear()
    _most.append(most)
    try:
        yield
    finally:
        _most.pop()


def count_kernel(path: Path) -> str:
    """Count a kernel, once, and return its number in words; the number alone if the total is not known."""
    _seen.add(path)
    number, most = len(_seen), _most[-1] if _most else 0
    return f"{number} of at most {most}" if number <= most else str(number)


def compiling(number: str) -> str:
    """Message before a compilation."""
    return (
        f"compiling the simulator, part {number} (once per task and number of drones, some 25 s each "
        "on an idle core) ..."
    )
