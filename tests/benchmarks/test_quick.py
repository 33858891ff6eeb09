"""Every program in benchmarks/ runs to its end with --quick and prints results alone (`make test-slow`)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.benchmarks.test_programs import PROGRAMS

ROOT = Path(__file__).resolve().parents[2]
NEEDS_DATA = {"pusht"}  # the published demonstrations, which are not in the repository
NOT_QUICK = {"attack", "demo"}  # parts that take arguments; the whole workflow


MORE = [  # parts that a program runs on request only
    ("pixels", "--methods=lanes_retrained"),
    ("pixels", "--methods=lanes_taught+steering_taught"),
]


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("name", "words"),
    [*((name, "") for name in PROGRAMS if name not in NEEDS_DATA | NOT_QUICK), *MORE],
)
def test_a_quick_run_ends_and_prints_results_alone(name: str, words: str, tmp_path: Path) -> None:
    """One JSON object a line, marked as quick; a part that this machine cannot run is named in words."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / f"{name}.py"), "--quick", *words.split()],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    results = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert results or "left out" in done.stdout + done.stderr or "nothing is measured" in done.stdout
    assert all(result["quick"] for result in results)
    assert "Next:" not in done.stdout  # what a verb says is no result
