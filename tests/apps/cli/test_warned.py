"""Warnings in a terminal."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest

from robo_rl.apps.cli.warned import print_sentences
from robo_rl.core.packages import ROOT


def test_our_warnings_are_sentences_and_those_of_others_stay(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A missing compiler was told with a path and a line of code, in the middle of a progress bar."""
    ours, others, before = (
        str(ROOT / "sim" / "compile" / "kernels.py"),
        str(tmp_path / "else.py"),
        list[Any](),
    )
    monkeypatch.setattr(warnings, "showwarning", lambda *given: before.append(given))
    print_sentences()
    warnings.showwarning("No C++ compiler was found.", UserWarning, ours, 78)
    assert capsys.readouterr().err == "robo-rl: warning: No C++ compiler was found.\n"
    assert not before
    warnings.showwarning("an old call", DeprecationWarning, others, 3)
    assert before == [("an old call", DeprecationWarning, others, 3, None, None)]
