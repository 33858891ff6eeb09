"""Environment steps of `robo-rl finetune`: what is counted, and for what."""

from __future__ import annotations

import json
from pathlib import Path

from robo_rl.apps.cli.main import main as robo_rl


def test_an_evaluation_steps_no_more_environments_than_it_has_episodes(tmp_path: Path) -> None:
    """Every environment step counts, also of idle lanes, so fewer episodes must cost less."""
    learner = [
        "method.learner.batch=8",
        "method.learner.hidden=[8]",
        "method.base_steps=16",
        "method.utd=0.1",
    ]
    words = ["env=quad/hover", "method=sac", "max_episode_steps=8", "num_envs=2", "env_steps=32", *learner]
    found = []
    for episodes in (1, 2):
        out = tmp_path / str(episodes)
        few = [f"eval_episodes={episodes}", "eval_every=0", "final_episodes=4", "device=cpu"]
        assert robo_rl(["finetune", *words, *few, f"out={out}"]) == 0
        found.append(json.loads((out / "results.json").read_text())["steps"]["selection"])
    assert 2 * found[0] == found[1] <= 2 * 2 * 8  # of the first and the last policy, 8 steps an episode
