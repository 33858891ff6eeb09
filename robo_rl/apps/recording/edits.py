"""Edits of committed episodes from the page, in a thread, because an edit waits for the disk."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

from robo_rl.apps.recording.episodes import Episodes
from robo_rl.core.errors import DataError, RoboRLError
from robo_rl.data.edit.changes import EditReport

Edit = Callable[[Path], EditReport]
MOST = 8  # edits that wait
RETRY_S = 1.0  # between two tries to open the dataset again


class EditThread:
    """One edit at a time; others wait for it. The dataset's writer is closed meanwhile, so no episode starts.

    say: called with (sentence, level) at the end. A dataset that another process writes then, or that cannot
    be read, is opened again as soon as that is possible.
    """

    def __init__(self, path: Path, episodes: Episodes, say: Callable[[str, str], None]) -> None:
        self._path, self._episodes, self._say = path, episodes, say
        self._thread: threading.Thread | None = None
        self._waiting: deque[Edit] = deque()
        self._result: tuple[str, str] = ("", "")
        self._shut = False  # an edit has ended, and the dataset is to be opened again
        self._tries = 0  # of opening it
        self._next_s = 0.0  # time of the next try

    def begin(self, edit: Edit) -> None:
        """Start an edit, or let it wait for the one that runs. Raises DataError while there is an episode, or
        where `MOST` edits wait.
        """
        if self._thread is not None or self._shut:
            if len(self._waiting) >= MOST:
                raise DataError(f"{MOST} edits of the dataset are waiting; try again in a moment.")
            self._waiting.append(edit)
            return
        self._episodes.release()
        self._thread = threading.Thread(target=self._run, args=(edit,), daemon=True)
        self._thread.start()

    def tick(self) -> None:
        """Open the dataset again once the edit has ended, and begin the next one."""
        if self._thread is not None and not self._thread.is_alive():
            self._thread, self._shut, self._tries, self._next_s = None, True, 0, 0.0
            self._say(*self._result)
        if not self._shut or time.monotonic() < self._next_s or not self._opened():
            return
        self._shut = False
        if self._waiting:
            self.begin(self._waiting.popleft())

    def close(self) -> None:
        """Wait for the end of the edits."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        while self._waiting:
            self._run(self._waiting.popleft())

    def _opened(self) -> bool:
        """Open the dataset again; False, with a sentence at the first try, if that is not possible yet."""
        try:
            self._episodes.reopen()
        except RoboRLError as error:
            if not self._tries:
                self._say(f"No episode can start: {error} This is tried again every second.", "error")
            self._tries, self._next_s = self._tries + 1, time.monotonic() + RETRY_S
            return False
        return True

    def _run(self, edit: Edit) -> None:
        try:
            self._result = edit(self._path).sentence, "info"
        except (RoboRLError, OSError) as error:
            self._result = str(error), "error"
