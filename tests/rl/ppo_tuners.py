"""PPO on the toy task, over several action maps."""

from __future__ import annotations

from typing import Any

from policies.base.noise import EpisodeNoise
from policies.executor import ChunkExecutor
from robo_rl.core.action_map import ActionMap, LatentMap, ResidualMap
from robo_rl.core.seeding import EpisodeSeeds, generator
from robo_rl.rl.collect import Collector
from robo_rl.rl.loop import FinetuneConfig
from robo_rl.rl.off_policy.config import LearnerConfig
from robo_rl.rl.on_policy.ppo import PpoConfig
from robo_rl.rl.on_policy.ppo_learner import PpoLearner
from robo_rl.rl.on_policy.rollout import Rollout
from robo_rl.rl.on_policy.tuner import PpoTuner
from sim.vec.workers import WorkerVecEnv
from tests.policies.small import flow_policy
from tests.rl.worlds import SPEC, TargetLane, widths

MAPS = [
    ResidualMap(1, 0.5),
    ResidualMap(1, 0.5, steps=2),
    LatentMap(4, 1, 1.5),
    LatentMap(4, 1, 1.5, "gaussian"),
]


def make_tuner(
    action_map: ActionMap, lanes: int = 3, env_steps: int = 180, **ppo: Any
) -> tuple[PpoTuner, WorkerVecEnv, EpisodeSeeds]:
    """A new tuner; equal calls give equal tuners."""
    settings = PpoConfig(**{"rollout": 20, "epochs": 3, "warmup": 0} | ppo)
    config = FinetuneConfig(env_steps=env_steps, base_steps=0, burn_in=0, learner=learner_config())
    base, env, root = flow_policy(SPEC), WorkerVecEnv(TargetLane, lanes), ("ppo", 0)
    learner = PpoLearner(4, action_map, config.learner, settings, generator("learner", 0))
    rollout = Rollout(lanes, settings.rollout, widths(action_map) | {"u": action_map.dim})
    collector = Collector(env, ChunkExecutor(base, lanes), EpisodeNoise((4, 1)), action_map, 0.9, rollout)
    seeds, first = EpisodeSeeds(root), EpisodeSeeds(root)
    collector.reset(env.reset(seeds), [next(first) for _ in range(lanes)])
    return PpoTuner(config, settings, collector, learner, rollout), env, seeds


def learner_config(**changes: Any) -> LearnerConfig:
    return LearnerConfig(**{"hidden": [16], "gamma": 0.9, "lr_actor": 1e-2, "lr_critic": 1e-2} | changes)
