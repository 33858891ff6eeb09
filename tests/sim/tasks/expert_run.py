"""Episodes of a scripted expert, all at the same time."""

from __future__ import annotations

from typing import Any

import torch

from robo_rl.core.seeding import EpisodeSeeds
from robo_rl.eval.stats import SuccessRate
from sim.registry import make_env, make_expert


def run_expert(name: str, episodes: int, noise: float = 0.0) -> SuccessRate:
    """Success of the expert in this many episodes."""
    env: Any = make_env(name, episodes, compiled=False, threads=1)
    expert = make_expert(name, noise, env=env)
    obs, steps = env.reset(EpisodeSeeds(("expert", 0))), torch.zeros(episodes, dtype=torch.long)
    given = EpisodeSeeds(("expert", 0))
    seeds = torch.tensor([next(given) for _ in range(episodes)])
    ended, solved = torch.zeros(episodes, dtype=torch.bool), torch.zeros(episodes, dtype=torch.bool)
    while not bool(ended.all()):
        obs, _, _, _, info = env.step(expert.act(obs, seeds, steps))
        steps += 1
        solved |= info["final_mask"] & ~ended & info["success"]
        ended |= info["final_mask"]
    env.close()
    return SuccessRate(int(solved.sum()), episodes)
