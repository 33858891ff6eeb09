"""A task that is learned in seconds, with real base policy, executor and simulator workers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from policies.base.noise import EpisodeNoise
from policies.executor import ChunkExecutor
from policies.tuned.one_step import JumpHead
from robo_rl.core.action_map import ActionMap, CandidateMap, ChainMap
from robo_rl.core.seeding import EpisodeSeeds, generator
from robo_rl.core.spec import ActionSpec, ArraySpec, EnvSpec
from robo_rl.data.replay import Replay
from robo_rl.rl.collect import Collector
from robo_rl.rl.loop import FinetuneConfig, FineTuner
from robo_rl.rl.mix import ReplayMix
from robo_rl.rl.off_policy.candidates import CandidateLearner
from robo_rl.rl.off_policy.config import LearnerConfig
from robo_rl.rl.off_policy.flow_q import FlowQLearner
from robo_rl.rl.off_policy.learner import OffPolicyLearner
from sim.vec.lane import LaneObs, LaneStep
from sim.vec.workers import WorkerVecEnv
from tests.policies.small import flow_policy

LIMIT = 4.0
SPEC = EnvSpec(
    "toy/target", {"state": ArraySpec((2,), unit="m")}, ActionSpec((-LIMIT,), (LIMIT,), "m"), 6, 50.0
)


@dataclass
class TargetLane:
    """state = (target, position); position += action / 4. Success and end within 0.2 of the target."""

    spec: EnvSpec = SPEC
    info_keys: tuple[str, ...] = ()
    _state: NDArray[np.float32] = field(default_factory=lambda: np.zeros(2, np.float32))
    _steps: int = 0

    def reset(self, seed: int) -> LaneObs:
        self._state[:] = (np.random.default_rng(seed).uniform(1.0, 4.0), 1.0)
        self._steps = 0
        return {"state": self._state.copy()}

    def step(self, action: NDArray[np.float32]) -> LaneStep:
        self._state[1] += action[0] / LIMIT
        self._steps += 1
        near = bool(abs(self._state[0] - self._state[1]) < 0.2)
        return {"state": self._state.copy()}, float(near), near, not near and self._steps >= 6, near

    def info(self) -> Sequence[float]:
        return ()

    def render(self) -> NDArray[np.uint8]:
        return np.zeros((4, 4, 3), np.uint8)

    def close(self) -> None:
        pass


def widths(action_map: ActionMap) -> dict[str, int]:
    """Replay widths for the flow policy of `tests.policies.small`: features 4, chunks of 2 executed
    actions.
    """
    action = 2 if action_map.timescale == "chunk" else 1
    ctx, critic = action_map.ctx_dim, action_map.critic_dim
    return {"obs": 4, "ctx": ctx, "critic_action": critic, "action": action, "next_obs": 4, "next_ctx": ctx}


def make_env(lanes: int = 3) -> WorkerVecEnv:
    return WorkerVecEnv(TargetLane, lanes)


def make_tuner(
    action_map: ActionMap, config: FinetuneConfig, lanes: int = 3, logger: object = None
) -> tuple[FineTuner, WorkerVecEnv, EpisodeSeeds]:
    """A tuner at its start; the same call gives the same tuner."""
    base, env, root = flow_policy(SPEC), make_env(lanes), ("toy", 0)
    rng = generator("learner", 0)
    learner, others = OffPolicyLearner(4, action_map, config.learner, rng), None
    if isinstance(action_map, ChainMap):
        learner = FlowQLearner(4, action_map, config.learner, rng, JumpHead(base), base)
    if isinstance(action_map, CandidateMap):
        learner = CandidateLearner(4, action_map, config.learner, rng)
        others = EpisodeNoise(((action_map.count - 1) * base.chunk, 1), 1.0, stream=7)
    store = Replay(config.replay_capacity, lanes, widths(action_map))
    noise = EpisodeNoise((base.chunk, 1))
    executor, gamma = ChunkExecutor(base, lanes), config.learner.gamma
    collector = Collector(env, executor, noise, action_map, gamma, store, others=others)
    seeds, first = EpisodeSeeds(root), EpisodeSeeds(root)
    collector.reset(env.reset(seeds), [next(first) for _ in range(lanes)])
    mix = ReplayMix({"online": store}, {"online": 1.0})
    return FineTuner(config, collector, learner, mix, generator("replay", 0), logger), env, seeds  # type: ignore[arg-type]


def small_config(env_steps: int = 120, **learner: object) -> FinetuneConfig:
    settings = {"hidden": [16], "batch": 16} | learner
    return FinetuneConfig(
        env_steps=env_steps,
        base_steps=60,
        burn_in=20,
        replay_capacity=600,
        learner=LearnerConfig(**settings),  # type: ignore[arg-type]
    )
