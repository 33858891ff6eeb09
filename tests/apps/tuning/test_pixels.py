"""From pictures: collect, train and fine-tune with two cameras and the robot's own state."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from policies.checkpoint import load_policy
from robo_rl.apps.cli.main import main

ENV = "metaworld/reach-v3:cameras=corner3+gripperPOV,image_size=24,state=robot"


@pytest.mark.slow
def test_fine_tunes_from_two_cameras(tmp_path: Path) -> None:
    """The policy reads both pictures and the robot's own state, and nothing that only the simulator knows."""
    data, base = tmp_path / "data", tmp_path / "base"
    assert main(["collect", f"env={ENV}", "episodes=2", "num_envs=2", f"out={data}"]) == 0
    small = ["image.widths=[4,8]", "net.width=16", "net.depth=1", "batch_size=8", "steps=2", "threads=1"]
    assert main(["train", f"data={data}", f"out={base}", *small]) == 0
    seen = load_policy(base / "policy").obs_spec
    assert sorted(seen) == ["image.corner3", "image.gripperPOV", "state"]
    assert seen["state"].shape == (4,)
    short = ["max_episode_steps=12", "env_steps=60", "eval_episodes=1", "final_episodes=1", "num_envs=2"]
    for method in ("steering", "residual"):
        out = tmp_path / method
        words = [f"base={base}", f"demos={data}", f"method={method}", "method.base_steps=30", f"out={out}"]
        assert main(["finetune", *words, *short]) == 0
        results = json.loads((out / "results.json").read_text())
        assert results["env_steps"] == 60
        assert results["policy"]["rate"]["n"] == 1
