"""No process outlives the one that started it."""

from __future__ import annotations

import multiprocessing as mp
import os
import threading
from multiprocessing import connection


def exit_with_parent() -> None:
    """End this process, from now on, as soon as its parent is gone; does nothing in a process that has none.

    A worker deep in a simulator's loop, or in training, would not notice that nobody waits for it any more.
    """
    parent = mp.parent_process()
    if parent is None:
        return
    sentinel = parent.sentinel

    def watch() -> None:
        connection.wait([sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
