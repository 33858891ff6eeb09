"""A real task with a policy that has learned next to nothing."""

from __future__ import annotations

from pathlib import Path

from robo_rl.apps.cli.main import main as robo_rl


def reach_base(folder: Path, width: int) -> tuple[Path, Path]:
    """(demonstrations, base policy) of MetaWorld's fastest task, made in `folder`. width: of the network."""
    data, out = folder / "data", folder / "base"
    few = ["episodes=3", "num_envs=2", "num_workers=0"]
    small = ["steps=60", f"net.width={width}", "process.steps=2"]
    assert robo_rl(["collect", "env=metaworld/reach-v3", f"out={data}", *few]) == 0
    assert robo_rl(["train", f"data={data}", f"out={out}", *small]) == 0
    return data, out
