"""Warnings of our own code in a terminal: one sentence each, without the line of code that Python adds."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import TextIO

from robo_rl.apps.cli.user_code import is_ours


def print_sentences() -> None:
    """From now on, print warnings of our code as sentences. Those of other packages stay as they are."""
    as_python_prints = warnings.showwarning

    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        if not is_ours(Path(filename).resolve()):
            as_python_prints(message, category, filename, lineno, file, line)
            return
        text, out = f"robo-rl: warning: {message}", file or sys.stderr
        if "tqdm" in sys.modules:  # a progress bar would share the line
            from tqdm import tqdm

            tqdm.write(text, file=out)
        else:
            print(text, file=out)

    warnings.showwarning = show
