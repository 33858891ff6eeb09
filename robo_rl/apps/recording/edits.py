"""Edits of committed episodes from the page, in a thread, because an edit waits for the disk."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from robo_rl.apps.recording.episodes import Episodes
from robo_rl.core.errors import DataError, RoboRLError
from robo_rl.data.edit.changes import EditReport

Edit = Callable[[Path], EditReport]


class EditThread:
    """One edit at a time. The dataset's writer is closed meanwhile, so no episode starts.

    say: called with (sentence, level) at the end.
    """

    def __init__(self, path: Path, episodes: Episodes, say: Callable[[str, str], None]) -> None:
        self._path, self._episodes, self._say = path, episodes, say
        self._thread: threading.Thread | None = None
        self._result: tuple[str, str] = ("", "")

    def begin(self, edit: Edit) -> None:
        """Start an edit. Raises DataError while there is an episode or another edit."""
        if self._thread is not None:
            raise DataError("Another edit of the dataset is running.")
        self._episodes.release()
        self._thread = threading.Thread(target=self._run, args=(edit,), daemon=True)
        self._thread.start()

    def tick(self) -> None:
        """Open the dataset again once the edit has ended."""
        if self._thread is None or self._thread.is_alive():
            return
        self._thread = None
        self._episodes.reopen()
        self._say(*self._result)

    def close(self) -> None:
        """Wait for the end of the edit."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _run(self, edit: Edit) -> None:
        try:
            self._result = edit(self._path).sentence, "info"
        except (RoboRLError, OSError) as error:
            self._result = str(error), "error"
