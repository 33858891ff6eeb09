"""Compressed pictures that are broken."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import numpy as np
from hardware.camera.jpeg import decoded
from robo_rl.core.errors import DataError
for data in (b"\\x89PNG\\r\\n\\x1a\\n123", b"\\xff\\xd8\\xff\\xe0 no picture", b""):
    try:
        decoded(np.frombuffer(data, np.uint8))
    except DataError as error:
        print(error)
"""


def test_broken_pictures_are_one_sentence_and_no_lines_of_opencv() -> None:
    """A process of its own: OpenCV reads its log level when it is loaded."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert [line.split(" is ")[0] for line in done.stdout.splitlines()] == [
        f"A compressed picture of {size} bytes" for size in (11, 15, 0)
    ]
    assert done.stderr == ""
