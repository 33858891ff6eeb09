"""Design promise 5: killing the recorder at any instant loses no committed episode and no complete frame."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


def _run(*arguments: str) -> list[dict[str, Any]]:
    command = [sys.executable, *arguments]
    done = subprocess.run(command, cwd=ROOT, env={"PYTHONPATH": "."}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def _assert_nothing_lost(tmp_path: Path, codec: str, stride: int) -> None:
    first, *results = _run("tests/data/die_at.py", str(tmp_path), codec, str(stride))
    assert first == {"orphan": [2]}, "a child of the dead recorder must not keep the lock"
    assert len(results) > 100 / stride
    assert not results[-1]["died"]
    assert [r["died"] for r in results[:-1]] == [True] * (len(results) - 1)
    for r in results:
        assert r["committed"] in (1, 2), r
        assert (r["faults"], r["staging"], r["content"]) == ([], [], True), r
        assert r["success"] == [True if done else None for done in r["complete"]], r
    # The later the kill, the more is left: nothing, one frame, both, both with the label, the committed
    # episode.
    left = [(r["committed"], sum(r["salvaged"]), sum(r["complete"])) for r in results]
    progress = [(c, 2, 1) if c == 2 else (c, n, done) for c, n, done in left]
    for with_final_obs in (progress[0::2], progress[1::2]):  # the two kinds of commit alternate
        assert with_final_obs == sorted(with_final_obs)
    assert {(1, 0, 0), (1, 2, 1), (2, 2, 1)} <= set(progress)


def test_a_kill_at_any_call_loses_nothing(tmp_path: Path) -> None:
    """Every 19th call that touches the disk, half a write included, each in its own process."""
    _assert_nothing_lost(tmp_path, "jpeg", 19)


@pytest.mark.slow
@pytest.mark.parametrize("codec", ["raw", "jpeg"])
def test_a_kill_at_every_call_loses_nothing(tmp_path: Path, codec: str) -> None:
    """All of those calls."""
    _assert_nothing_lost(tmp_path, codec, 1)


def test_kills_at_random_instants_lose_nothing() -> None:
    """Four kills of a recorder at full speed; `benchmarks/kill_recorder.py --kills 200` is the long run."""
    lines = {line["name"]: line["value"] for line in _run("benchmarks/kill_recorder.py", "--kills", "4")}
    assert lines["recorder/kills"] == 4
    for name in ("committed_lost", "frames_lost", "wrong_rows", "faults"):
        assert lines[f"recorder/{name}"] == 0, lines
