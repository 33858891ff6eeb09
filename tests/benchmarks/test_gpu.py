"""The program for a GPU says what it left out, and its parts run in small sizes on the CPU."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

PROGRAM = Path(__file__).parents[2] / "benchmarks" / "gpu.py"


def lines(*words: str) -> tuple[int, list[dict[str, Any]]]:
    """Exit status and results of one call."""
    done = subprocess.run(
        [sys.executable, str(PROGRAM), *words], capture_output=True, text=True, check=False, timeout=280
    )
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return done.returncode, found


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_without_a_gpu_every_part_is_left_out_with_the_reason() -> None:
    """That is no error: exit status 0."""
    status, found = lines("--quick")
    assert status == 0
    assert len(found) == 10
    assert all(line["name"].endswith("/left_out") and "CUDA" in line["why"] for line in found)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("part", "names"),
    [
        ("learner", {"gpu/learner/sac/256/updates_per_cpu-s", "gpu/learner/fast_td3/256/updates_per_cpu-s"}),
        ("base", {"gpu/base/mlp/updates_per_cpu-s", "gpu/base/unet1d/updates_per_cpu-s"}),
        ("head", {"gpu/head/single_step/1/decisions_per_cpu-s", "gpu/head/flow/4096/decisions_per_cpu-s"}),
        ("dynamics", {"gpu/dynamics/rk4/drone_steps_per_cpu-s"}),
        ("hover", {"gpu/hover/train_s", "gpu/hover/build_s"}),
    ],
)
def test_a_part_runs_on_the_cpu(part: str, names: set[str]) -> None:
    """In small sizes, with the code that a GPU runs."""
    status, found = lines("--device", "cpu", "--quick", "--part", part)
    assert status == 0
    assert names <= {line["name"] for line in found}
    assert all(line["value"] > 0 for line in found)


@pytest.mark.slow
def test_the_residual_runs_on_the_cpu(tmp_path: Path) -> None:
    """From demonstrations to the comparison of base and result, in MuJoCo instead of MuJoCo Warp."""
    program = PROGRAM.parent / "gpu_parts" / "peg_insert.py"
    words = ["--device", "cpu", "--quick", "--env", "arm/peg_insert:compiled=false"]
    done = subprocess.run(
        [sys.executable, str(program), *words, "--folder", str(tmp_path)],
        capture_output=True, text=True, check=False, timeout=280,
    )  # fmt: skip
    found = {line["name"]: line for line in map(json.loads, done.stdout.splitlines()[-7:])}
    assert done.returncode == 0, done.stderr
    names = ("base_success", "success", "wall_s", "env_steps", "updates", "build_s", "verb_s")
    assert set(found) >= {f"gpu/peg_insert/cpu/{name}" for name in names}
    assert found["gpu/peg_insert/cpu/updates"]["value"] > 0
