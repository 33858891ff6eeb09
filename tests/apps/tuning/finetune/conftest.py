"""A barely trained base of the fastest task, with its demonstrations."""

from __future__ import annotations

from pathlib import Path

import pytest

from robo_rl.apps.cli.main import main as robo_rl


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """(demonstrations, base policy) of the fastest task."""
    folder = tmp_path_factory.mktemp("finetune")
    data, out = folder / "data", folder / "base"
    few = ["episodes=3", "num_envs=2", "num_workers=0"]
    assert robo_rl(["collect", "env=metaworld/reach-v3", f"out={data}", *few]) == 0
    assert (
        robo_rl(["train", f"data={data}", f"out={out}", "steps=60", "net.width=32", "process.steps=2"]) == 0
    )
    return data, out
