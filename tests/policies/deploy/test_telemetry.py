"""Bundles run without reports to the developers of ONNX Runtime."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def test_onnx_runtime_sends_and_keeps_nothing(tmp_path: Path) -> None:
    """Version 1.29 and later send usage data from Linux, and store an identifier of the machine at import."""
    code = (
        "import os; from policies.deploy.graph import providers; providers('cpu'); "
        "print(os.environ['ORT_DISABLE_TELEMETRY'])"
    )
    without = {"ORT_DISABLE_TELEMETRY", "XDG_CACHE_HOME"}
    env = {name: value for name, value in os.environ.items() if name not in without}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=env | {"HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "1\n"
    assert not list(tmp_path.rglob("*onnxruntime*"))
