"""Ending a process together with its parent."""

from __future__ import annotations

import multiprocessing as mp
import os
import threading
from multiprocessing import connection


def exit_with_parent() -> None:
    """End this process as soon as its parent is gone; does nothing in a process without a parent.

    A worker inside a simulator or in training would not notice by itself.
    """
    parent = mp.parent_process()
    if parent is None:
        return
    sentinel = parent.sentinel

    def watch() -> None:
        connection.wait([sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
