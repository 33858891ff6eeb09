"""Ctrl-C between two steps, not in the middle of one: what is half done could not be saved."""

from __future__ import annotations

import signal
from types import FrameType, TracebackType
from typing import Any


class Interruptible:
    """Inside the `with` block the first Ctrl-C is only noted; `check`, called between steps, raises it.

    The second one is raised at once, for whoever does not want to wait. Works in the main thread only, as signals do.
    """

    def __init__(self) -> None:
        self.asked = False
        self._before: Any = None

    def __enter__(self) -> Interruptible:
        self._before = signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        signal.signal(signal.SIGINT, self._before)

    def check(self) -> None:
        """Raise KeyboardInterrupt when Ctrl-C was pressed."""
        if self.asked:
            raise KeyboardInterrupt

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
