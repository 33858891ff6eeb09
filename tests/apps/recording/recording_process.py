"""Process that records episodes with the app in virtual time until it is killed: prints what is on the disk.

"saved <number>" after each commit, "frame <count>" after each frame of the running episode.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.apps.recording.cell import make_cell

cell = make_cell(Path(sys.argv[1]), task="push the button")
while True:
    number = cell.node.episodes.tally.episodes
    cell.ask(kind="start")
    written = 0
    while cell.node.episodes.frames < 20:
        cell.drive(0.05)
        if cell.node.episodes.frames > written:
            written = cell.node.episodes.frames
            print("frame", written - 1, flush=True)  # the newest one waits for its reward
    cell.ask(kind="save", success=True)
    print("saved", number, flush=True)
    cell.run(2.0)
