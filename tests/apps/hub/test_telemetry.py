"""Push and pull send the Hub no usage data, such as the version of torch."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

CODE = """
from robo_rl.apps.hub.remote import HubRepo
HubRepo("me/head", "model")
from huggingface_hub.utils import build_hf_headers
print(build_hf_headers()["user-agent"])
"""


def test_requests_do_not_name_the_version_of_torch() -> None:
    """The package reads its variable when it is imported: a later setting has no effect."""
    pytest.importorskip("huggingface_hub")
    env = {name: value for name, value in os.environ.items() if name != "HF_HUB_DISABLE_TELEMETRY"}
    done = subprocess.run([sys.executable, "-c", CODE], env=env, capture_output=True, text=True, check=True)
    assert "hf_hub/" in done.stdout
    assert "torch" not in done.stdout
