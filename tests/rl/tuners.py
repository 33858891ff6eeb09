"""Tuners on a toy task, for tests of single methods."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from policies.base.noise import EpisodeNoise
from policies.executor import ChunkExecutor
from policies.tuned.direct import DirectPolicy
from robo_rl.core.action_map import ActionMap, DirectMap
from robo_rl.core.protocols import ChunkPolicy, Obs, VecEnv
from robo_rl.core.seeding import EpisodeSeeds, generator
from robo_rl.data.replay import Batch, Replay
from robo_rl.rl.collect import Collector
from robo_rl.rl.demos import demo_replay
from robo_rl.rl.loop import FinetuneConfig, FineTuner
from robo_rl.rl.mix import ReplayMix
from robo_rl.rl.off_policy.config import LearnerConfig
from robo_rl.rl.off_policy.learner import OffPolicyLearner
from tests.rl.worlds import LIMIT, SPEC, make_env, widths

LANES = 3


class Demo:
    """Three steps to the right, then the target is reached."""

    frames, success, continues = 3, True, False
    action = np.full((3, 1), LIMIT, np.float32)
    reward, terminated = np.ones(3, np.float32), np.array([False, False, True])
    intervention = np.zeros(3, bool)

    def obs(self, key: str) -> np.ndarray:
        return np.array([[4.0, 1.0], [4.0, 2.0], [4.0, 3.0], [4.0, 4.0]], np.float32)


class Human:
    """Moves towards the target."""

    def act(self, obs: Obs, episode_seed: Tensor, step: Tensor) -> Tensor:
        target, position = obs["state"].unbind(1)
        return LIMIT * (target - position).clamp(-1.0, 1.0).unsqueeze(1)


def build(
    action_map: ActionMap,
    base: ChunkPolicy,
    env: VecEnv | None = None,
    stores: tuple[str, ...] = ("online",),
    **config: Any,
) -> tuple[FineTuner, VecEnv, EpisodeSeeds]:
    """A tuner over the toy task; `fractions`, `learner` and the settings of FinetuneConfig are keywords."""
    fractions = config.pop("fractions", {"online": 1.0})
    learner_settings = LearnerConfig(**{"hidden": [16], "batch": 16} | config.pop("learner", {}))
    settings = FinetuneConfig(
        **{"env_steps": 120, "base_steps": 30, "burn_in": 0, "guard_window": 0} | config
    )
    settings.learner = learner_settings
    env = make_env(LANES) if env is None else env
    size = widths(action_map)
    if base.obs_steps == 1:
        size |= {"obs": 2, "next_obs": 2}
    made = {name: Replay(2400, LANES, size) for name in stores if name != "demo"}
    if "demo" in stores:
        made["demo"] = demo_replay([Demo(), Demo()], base, action_map, size, learner_settings.gamma)
    learner = OffPolicyLearner(size["obs"], action_map, learner_settings, generator("learner", 0))
    noise = EpisodeNoise((base.chunk, 1))
    collector = Collector(
        env, ChunkExecutor(base, LANES), noise, action_map, learner_settings.gamma, made["online"],
        made.get("intervention"),
    )  # fmt: skip
    seeds, first = EpisodeSeeds(("methods", 0)), EpisodeSeeds(("methods", 0))
    collector.reset(env.reset(seeds), [next(first) for _ in range(LANES)])
    return (
        FineTuner(settings, collector, learner, ReplayMix(made, fractions), generator("replay", 0)),
        env,
        seeds,
    )


def direct(env: VecEnv | None = None, **config: Any) -> tuple[FineTuner, VecEnv, EpisodeSeeds]:
    return build(DirectMap(1), DirectPolicy(SPEC).eval(), env, **config)


def stored(store: Replay, name: str) -> Tensor:
    """(k, ...) of all lanes."""
    return torch.cat([store.data[name][lane, : int(head)] for lane, head in enumerate(store.head)])


def batch(size: int = 32, obs: int = 4, width: int = 1, **changes: Tensor) -> Batch:
    rng = torch.Generator().manual_seed(2)
    action = torch.rand(size, width, generator=rng) * 2.0 - 1.0
    values = {
        "obs": torch.randn(size, obs, generator=rng),
        "ctx": torch.zeros(size, 0),
        "critic_action": action,
        "action": action,
        "reward": torch.zeros(size),
        "discount": torch.zeros(size),
        "next_obs": torch.randn(size, obs, generator=rng),
        "next_ctx": torch.zeros(size, 0),
        "mc_return": torch.zeros(size),
        "return_floor": torch.full((size,), torch.nan),
        "demo": torch.zeros(size),
    }
    return Batch(**(values | changes))
