"""Every kind of method as a tiny run, and its session on the toy task."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from policies.registry import SavedPolicy
from policies.tuned.direct import DirectPolicy
from robo_rl.apps.tuning.compose import TuningSession, build_session
from robo_rl.conf.finetune import MapConfig, MethodConfig
from robo_rl.core.seeding import EpisodeSeeds
from robo_rl.core.spec import EnvSpec
from robo_rl.data.store import DatasetWriter, EpisodeStore
from robo_rl.rl.denoising.config import DenoisingConfig
from robo_rl.rl.mix import MixConfig
from robo_rl.rl.off_policy.config import LearnerConfig
from robo_rl.rl.on_policy.groups import GroupConfig
from robo_rl.rl.on_policy.ppo import PpoConfig
from tests.policies.small import flow_policy
from tests.rl.worlds import SPEC, make_env

DEMOS = MixConfig(online=0.5, demo=0.5)
ANCHORS = MixConfig(online=0.5, base=0.5)


def method(
    kind: str, mix: MixConfig | None = None, algorithm: str = "off_policy", **options: Any
) -> MethodConfig:
    """A tiny run: 48 steps of the base, 5 updates of burn-in, 48 online."""
    where = {name: options.pop(name) for name in list(options) if name in MapConfig.__dataclass_fields__}
    learner: Any = {"hidden": [16]} | ({} if algorithm == "denoising" else {"batch": 16}) | options
    return MethodConfig(
        env_steps=96, base_steps=48, burn_in=5, replay_capacity=300, learner=LearnerConfig(**learner),
        mix=mix or MixConfig(), map=MapConfig(kind=kind, **where), algorithm=algorithm, name=kind,
    )  # fmt: skip


def denoising(objective: str = "clip", **settings: Any) -> MethodConfig:
    """Four rollouts of eight steps in three lanes."""
    ppo = PpoConfig(rollout=8, epochs=2, minibatches=2, warmup=0, objective=objective)
    return replace(
        method("chain", algorithm="denoising"), base_steps=0, burn_in=0, ppo=ppo,
        denoising=DenoisingConfig(level=0.7, **settings),
    )  # fmt: skip


def grouped(config: MethodConfig, size: int, **ppo: Any) -> MethodConfig:
    """The method with groups of episodes, all of which are learned from."""
    groups = GroupConfig(size=size, lowest=0.0, highest=1.0)
    return replace(config, groups=groups, ppo=replace(config.ppo, **ppo))


METHODS: dict[str, MethodConfig] = {
    "DSRL-SAC": method("steering"),
    "steering from the base's noise, low rank": method("steering", origin="gaussian", rank=2, norm_bound=0.5),
    "DSRL-NA": method("steering", algorithm="noise_aliased", auto_alpha=True, heads=3),
    "DSRL-NA by TD3": method("steering", algorithm="noise_aliased", actor="deterministic"),
    "ResFiT": method(
        "residual", DEMOS, actor="deterministic", n_step=3, heads=4, target_subset=2, actor_delay=2
    ),
    "gated residual": method("residual", DEMOS, actor="deterministic", gate=True),
    "residual of chunks": method("residual", per_chunk=True),
    "DAWN": method("residual", ANCHORS),
    "DPPO": denoising(first_clip=0.001, discount=0.9, progressive=0.5),
    "Flow-SDE": denoising(random_step="rollout", reduce="sum"),
    "Flow-Noise": denoising(noise_range=[0.1, 0.3], ratio="chain", entropy=0.01),
    "FPO++": replace(denoising("aspo"), map=MapConfig("draws", draws=3)),
    "AWR": replace(denoising("regression", reduce="sum"), map=MapConfig("draws", draws=2)),
    "GRPO": grouped(denoising(random_step="decision"), 2, rollout=20, normalize_reward=False),
    "SAC": method("direct", auto_alpha=True, entropy_in_target=True),
    "RLPD": method("direct", DEMOS, heads=4, target_subset=2, entropy_in_target=True),
}


def base_of(config: MethodConfig) -> SavedPolicy:
    return DirectPolicy(SPEC).eval() if config.map.kind == "direct" else flow_policy(SPEC)


def dataset(path: Path, spec: EnvSpec, outcomes: list[bool]) -> EpisodeStore:
    writer = DatasetWriter.create(path / "data", spec)
    for seed, outcome in enumerate(outcomes):
        with writer.episode(task="reach", seed=seed) as episode:
            for frame in range(5):
                shape = spec.obs["state"].shape
                episode.add(
                    {"state": np.full(shape, frame, np.float32)}, np.full(spec.action.dim, 0.5, np.float32),
                    reward=0.0, terminated=outcome and frame == 4,
                )  # fmt: skip
            episode.commit(
                success=outcome, final_obs={"state": np.full(spec.obs["state"].shape, 5, np.float32)}
            )
    return EpisodeStore(path / "data")


def session(config: MethodConfig, demos: EpisodeStore, log: Any = None) -> tuple[TuningSession, Any]:
    env = make_env(3)
    given = demos if config.mix.demo else None
    made = build_session(config, base_of(config), env, seed=0, demos=given, logger=log, say=lambda _: None)
    return made, env


def begin(made: TuningSession, env: Any) -> EpisodeSeeds:
    seeds, first = (EpisodeSeeds(made.seed_root, repeat=repeat_of(made)) for _ in range(2))
    made.tuner.collector.reset(env.reset(seeds), [next(first) for _ in range(3)])
    return seeds


def repeat_of(made: TuningSession) -> int:
    return max(1, made.tuner.config.groups.size)  # type: ignore[attr-defined]
