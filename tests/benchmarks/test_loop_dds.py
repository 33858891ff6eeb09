"""The benchmark of the loop over DDS runs and prints its lines."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("cyclonedds", reason="cyclonedds is not installed: pip install 'robo-rl[dds]'")

from tests.hardware.domains import free_domain

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_loop_dds_prints_its_lines() -> None:
    """Names and units; bounds so wide that only a broken loop exceeds them."""
    with free_domain() as domain:
        done = subprocess.run(
            [sys.executable, "benchmarks/loop_dds.py", "--quick"],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(ROOT), "ROS_DOMAIN_ID": str(domain)},
            capture_output=True,
            text=True,
            timeout=120,
        )
    assert done.returncode == 0, done.stderr
    lines = list(map(json.loads, done.stdout.splitlines()))
    found = {line["name"]: line for line in lines if "peer" not in line}
    assert {line["name"] for line in lines if "peer" in line} == {
        f"loop/dds/{hz}/rtt_ms_p50" for hz in (100, 500)
    }
    for rate_hz in (100, 500):
        assert 0.0 < found[f"loop/dds/{rate_hz}/rtt_ms_p50"]["value"] < 50.0
        assert found[f"loop/dds/{rate_hz}/rtt_ms_p50"]["unit"] == "ms"
        assert 0.0 <= found[f"loop/dds/{rate_hz}/missed_percent"]["value"] < 50.0
    assert found["loop/dds/image/publish_ms"]["value"] < 50.0
    assert found["loop/dds/image/publish_ms"]["pictures"] == 90
    assert all({"load_1min", "cores", "realtime", "machine"} <= line.keys() for line in found.values())
