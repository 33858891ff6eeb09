"""Killing an edit at any instant leaves the old dataset or the new one, each whole, and undo still works."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def _assert_whole(tmp_path: Path, edit: str, stride: int, exchange: bool) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    command = [
        sys.executable,
        "-m",
        "tests.data.edit.die_in_edit",
        str(folder),
        edit,
        str(stride),
        str(exchange),
    ]
    done = subprocess.run(command, cwd=ROOT, env={"PYTHONPATH": "."}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    results = [json.loads(line) for line in done.stdout.splitlines()]
    assert [r["died"] for r in results] == [True] * (len(results) - 1) + [False]
    for r in results:
        assert r["state"] in ("old", "new"), r
        assert (r["faults"], r["left"], r["again"]) == ([], [".set.undo", "set"], True), r
        assert not (exchange and r["gone"]), "the path always holds a dataset"
    states = [r["state"] for r in results]
    assert states == sorted(states, reverse=True), "old until the exchange, new after it"
    assert states[-1] == "new"


@pytest.mark.parametrize(("edit", "exchange"), [("split", True), ("delete", False)])
def test_an_edit_killed_at_some_calls_is_done_or_not_done(tmp_path: Path, edit: str, exchange: bool) -> None:
    """Every 29th call that touches the disk; without an exchange, `finish` puts a half-done swap right."""
    _assert_whole(tmp_path, edit, 29, exchange)


@pytest.mark.slow
@pytest.mark.parametrize("exchange", [True, False])
@pytest.mark.parametrize("edit", ["delete", "relabel", "split", "undo"])
def test_an_edit_killed_at_any_call_is_done_or_not_done(tmp_path: Path, edit: str, exchange: bool) -> None:
    """All of those calls."""
    _assert_whole(tmp_path, edit, 1, exchange)
