"""Putting a fine-tuning run together: the only place where action map, learner, replays, base and simulator meet."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from policies.direct import DirectPolicy
from policies.executor import ChunkExecutor
from policies.noise import EpisodeNoise
from policies.registry import SavedPolicy
from policies.residual import ResidualPolicy
from policies.steered import SteeredPolicy
from robo_rl.conf.finetune import MapConfig, MethodConfig
from robo_rl.core.action_map import ActionMap, DirectMap, LatentMap, ResidualMap
from robo_rl.core.errors import ConfigError
from robo_rl.core.protocols import Logger, VecEnv
from robo_rl.core.seeding import generator
from robo_rl.data.replay import Replay
from robo_rl.data.store import EpisodeStore
from robo_rl.rl.collect import Collector
from robo_rl.rl.demos import demo_replay
from robo_rl.rl.finetune import FineTuner
from robo_rl.rl.mix import ReplayMix
from robo_rl.rl.noise_aliased import NoiseAliasedLearner
from robo_rl.rl.off_policy import OffPolicyLearner


@dataclass(frozen=True)
class Session:
    """A run in memory: what learns, and the policy that shares its weights."""

    tuner: FineTuner
    policy: SavedPolicy
    noise_scale: float  # of the policy's initial noise, when it is evaluated or deployed
    seed_root: tuple[str, int]


def build_map(config: MapConfig, base: SavedPolicy) -> ActionMap:
    """The action map of a method over this base."""
    action_dim = base.action_spec.dim
    if config.kind == "steering":
        if base.chunk == 1 and isinstance(base, DirectPolicy):
            raise ConfigError("Steering needs a generative base to steer: give base=<policy folder>.")
        return LatentMap(base.chunk, action_dim, config.magnitude, config.origin, config.rank)  # type: ignore[arg-type]
    if config.kind == "residual":
        if isinstance(base, DirectPolicy) and base.actor is None:
            raise ConfigError("A residual needs a base to correct: give base=<policy folder>.")
        return ResidualMap(action_dim, config.scale, base.execute if config.per_chunk else 1)
    return DirectMap(action_dim)


def build_session(
    method: MethodConfig,
    base: SavedPolicy,
    env: VecEnv,
    *,
    seed: int,
    demos: EpisodeStore | None,
    logger: Logger | None = None,
    say: object = print,
) -> Session:
    """A run ready to start. Raises ConfigError when base, map and data do not fit together."""
    action_map = build_map(method.map, base)
    features = feature_dim(base, env)
    learner = build_learner(method, base, features, action_map, seed)
    stores = build_stores(method, base, env.num_envs, features, action_map, demos)
    executor = ChunkExecutor(base, env.num_envs)
    # Steering explores over the noise the base was trained on, whatever it starts from.
    scale = 1.0 if method.map.kind == "steering" else method.base_noise
    noise = EpisodeNoise((base.chunk, base.action_spec.dim), scale)
    collector = Collector(env, executor, noise, action_map, method.learner.gamma, stores["online"])
    mix = ReplayMix(stores, vars(method.mix))
    tuner = FineTuner(method, collector, learner, mix, generator("replay", seed), logger, say)  # type: ignore[arg-type]
    return Session(tuner, deployed(base, learner, action_map), scale, ("train", seed))


def build_learner(
    method: MethodConfig, base: SavedPolicy, features: int, action_map: ActionMap, seed: int
) -> OffPolicyLearner:
    rng = generator("learner", seed)
    if method.algorithm == "noise_aliased":
        return NoiseAliasedLearner(features, action_map, method.learner, rng, base)
    return OffPolicyLearner(features, action_map, method.learner, rng)


def deployed(base: SavedPolicy, learner: OffPolicyLearner, action_map: ActionMap) -> SavedPolicy:
    """The policy that runs what is being learned; it shares the learner's weights."""
    if isinstance(action_map, LatentMap):
        return SteeredPolicy(base, learner.actor, action_map)
    if isinstance(action_map, ResidualMap):
        return ResidualPolicy(base, learner.actor, action_map, learner.critic if learner.cfg.gate else None)
    assert isinstance(base, DirectPolicy)
    return DirectPolicy(base.env, base.normalizer, learner.actor)


def feature_dim(base: SavedPolicy, env: VecEnv) -> int:
    """Width of the base's features."""
    zeros = {
        key: torch.zeros(1, base.obs_steps, *spec.shape, dtype=spec.torch_dtype) for key, spec in env.spec.obs.items()
    }
    return int(base.features(zeros).shape[1])


def build_stores(
    method: MethodConfig,
    base: SavedPolicy,
    lanes: int,
    features: int,
    action_map: ActionMap,
    demos: EpisodeStore | None,
) -> dict[str, Replay]:
    """The replays that the method's mix names."""
    chunked = base.execute if action_map.timescale == "chunk" else 1
    widths = {
        "obs": features,
        "ctx": action_map.ctx_dim,
        "critic_action": action_map.critic_dim,
        "action": base.action_spec.dim * chunked,
        "next_obs": features,
        "next_ctx": action_map.ctx_dim,
    }
    names = [name for name in ("online", "base", "intervention") if name == "online" or getattr(method.mix, name) > 0.0]
    stores = {name: Replay(method.replay_capacity, lanes, widths) for name in names}
    if method.mix.demo > 0.0:
        if demos is None:
            raise ConfigError(
                f"method={method.name} replays demonstrations: give demos=<dataset>, or method.mix.demo=0."
            )
        stores["demo"] = demo_replay(demos, base, action_map, widths, method.learner.gamma, method.base_noise)
    return stores
