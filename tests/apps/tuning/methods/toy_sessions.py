"""Settings of all methods, in full and in small, and their sessions on the toy task."""

from __future__ import annotations

from copy import deepcopy
from functools import cache

import pytest
import yaml

from policies.registry import SavedPolicy
from policies.tuned.direct import DirectPolicy
from robo_rl.apps.cli.config import CONF, load_config
from robo_rl.apps.tuning import compose
from robo_rl.apps.tuning.compose import TuningSession, build_session, with_interventions
from robo_rl.conf.finetune import ON_POLICY, FinetuneVerb, MethodConfig
from robo_rl.core.protocols import VecEnv
from robo_rl.core.seeding import EpisodeSeeds
from robo_rl.data.store import EpisodeStore
from tests.policies.small import flow_policy
from tests.rl.tuners import Human
from tests.rl.worlds import SPEC, make_env

FILES = sorted((CONF / "method").glob("*.yaml"))
# `auto` runs others; `ppo_tokens` is trained in tests/apps/tuning/test_vla_methods.py
METHODS = [path.stem for path in FILES if path.stem not in ("auto", "ppo_tokens")]
# Read as they stand, because composing all settings takes too long while tests are collected.
MAPS = {name: yaml.safe_load((CONF / "method" / f"{name}.yaml").read_text())["map"] for name in METHODS}
WITH_BASE = [name for name, action_map in MAPS.items() if action_map["kind"] != "direct"]
LANES = 3


@cache
def composed(*words: str) -> FinetuneVerb:
    """Settings of the verb; hydra takes a tenth of a second, and many tests use the same words."""
    return load_config("finetune", [*words, "out=x"], FinetuneVerb)


def method(name: str, *overrides: str) -> MethodConfig:
    """The method's settings, for this caller alone."""
    return deepcopy(composed(f"method={name}", *overrides).method)


def small(name: str, *overrides: str) -> MethodConfig:
    """The method with smaller networks and fewer steps."""
    config = method(name)
    sizes = [
        "hidden=[8]",
        "critic_hidden=null",
        f"heads={min(4, config.learner.heads)}",
        *([] if config.algorithm in ON_POLICY else ["batch=8"]),
        f"actor_delay={min(2, config.learner.actor_delay)}",
    ]
    settings = [f"method.learner.{size}" for size in sizes] + [
        "method.replay_capacity=600",
        "method.env_steps=90",
    ]
    settings += [
        f"method.base_steps={min(45, config.base_steps)}",
        f"method.burn_in={min(4, config.burn_in)}",
    ]
    settings += [
        f"method.offline_updates={min(2, config.offline_updates)}",
        f"method.utd={min(0.2, config.utd)}",
        f"method.updates_per_step={'null' if config.updates_per_step is None else 0.6}",
    ]
    settings += [
        f"method.ramp_steps={min(60, config.ramp_steps)}",
        "method.ppo.rollout=10",
        "method.ppo.epochs=2",
        f"method.ppo.minibatches={min(2, config.ppo.minibatches)}",
        "method.ppo.critic_warmup=0",
        "method.denoising.trained_steps=null",
    ]
    if config.groups.size:
        settings += ["method.groups.size=2", "method.groups.lowest=0", "method.groups.highest=1"]
    return method(name, *settings, *overrides)


def session(
    config: MethodConfig, demos: EpisodeStore, monkeypatch: pytest.MonkeyPatch
) -> tuple[TuningSession, VecEnv, SavedPolicy]:
    """Built as by the verb, on the toy task."""
    monkeypatch.setattr(compose, "make_expert", lambda name, noise, seed, env: Human())
    env = with_interventions(config, "metaworld/reach-v3", make_env(LANES), seed=0)
    base = DirectPolicy(SPEC).eval() if config.map.kind == "direct" else flow_policy(SPEC)
    built = build_session(config, base, env, seed=0, demos=demos if config.mix.demo > 0.0 else None)
    repeat = max(1, config.groups.size)
    seeds, first = (EpisodeSeeds(built.seed_root, repeat=repeat) for _ in range(2))
    built.tuner.collector.reset(env.reset(seeds), [next(first) for _ in range(LANES)])
    return built, env, base
