"""Saying things to nobody: a program that holds a robot goes on when its terminal, or `robo-rl up`, is gone.

Printing raises then, in the middle of braking or landing: what was to be a safe stop would be cut short.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Any, TextIO


class BestEffortStream:
    """A text stream that loses what its reader does not take any more, and nothing else."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def ignore_lost_readers() -> None:
    """From now on no print raises because nobody reads it."""
    sys.stdout, sys.stderr = BestEffortStream(sys.stdout), BestEffortStream(sys.stderr)
