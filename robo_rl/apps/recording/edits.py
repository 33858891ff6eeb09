"""Edits of committed episodes from the page, in a thread, because an edit waits for the disk."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path

from robo_rl.apps.recording.episodes import Episodes
from robo_rl.core.errors import DataError, RoboRLError
from robo_rl.data.edit.changes import EditReport

Edit = Callable[[Path], EditReport]
MOST = 8  # edits that wait


class EditThread:
    """One edit at a time; others wait for it. The dataset's writer is closed meanwhile, so no episode starts.

    say: called with (sentence, level) at the end.
    """

    def __init__(self, path: Path, episodes: Episodes, say: Callable[[str, str], None]) -> None:
        self._path, self._episodes, self._say = path, episodes, say
        self._thread: threading.Thread | None = None
        self._waiting: deque[Edit] = deque()
        self._result: tuple[str, str] = ("", "")

    def begin(self, edit: Edit) -> None:
        """Start an edit, or let it wait for the one that runs. Raises DataError while there is an episode, or
        where `MOST` edits wait.
        """
        if self._thread is not None:
            if len(self._waiting) >= MOST:
                raise DataError(f"{MOST} edits of the dataset are waiting; try again in a moment.")
            self._waiting.append(edit)
            return
        self._episodes.release()
        self._thread = threading.Thread(target=self._run, args=(edit,), daemon=True)
        self._thread.start()

    def tick(self) -> None:
        """Open the dataset again once the edit has ended, and begin the next one."""
        if self._thread is None or self._thread.is_alive():
            return
        self._thread = None
        self._episodes.reopen()
        self._say(*self._result)
        if self._waiting:
            self.begin(self._waiting.popleft())

    def close(self) -> None:
        """Wait for the end of the edits."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        while self._waiting:
            self._run(self._waiting.popleft())

    def _run(self, edit: Edit) -> None:
        try:
            self._result = edit(self._path).sentence, "info"
        except (RoboRLError, OSError) as error:
            self._result = str(error), "error"
