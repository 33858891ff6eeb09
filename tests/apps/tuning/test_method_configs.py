"""Every method is a small file: it loads, has its paper's values, and learns a toy task."""

from __future__ import annotations

from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.device_world import DeviceWorld, first_seeds
from policies.registry import SavedPolicy
from policies.tuned.direct import DirectPolicy
from robo_rl.apps.cli.config import CONF, load_config
from robo_rl.apps.tuning import compose
from robo_rl.apps.tuning.compose import TuningSession, build_session, check_interventions, with_interventions
from robo_rl.apps.tuning.maps import build_map, check_together
from robo_rl.apps.tuning.warm_start import empty_policy, start_from
from robo_rl.conf.finetune import ON_POLICY, FinetuneVerb, MethodConfig
from robo_rl.conf.train import TrainConfig
from robo_rl.core.action_map import ResidualMap
from robo_rl.core.errors import CheckpointError, ConfigError, DataError
from robo_rl.core.files.state_io import save_state
from robo_rl.core.protocols import VecEnv
from robo_rl.core.seeding import EpisodeSeeds
from robo_rl.data.store import DatasetWriter, EpisodeStore
from robo_rl.eval.host_reads import HostReads
from robo_rl.runs.run_dir import RunDir
from tests.policies.small import flow_policy
from tests.rl.tuners import Human
from tests.rl.worlds import LIMIT, SPEC, make_env

FILES = sorted((CONF / "method").glob("*.yaml"))
# `auto` runs others; `ppo_tokens` is trained in tests/apps/tuning/test_vla_methods.py
METHODS = [path.stem for path in FILES if path.stem not in ("auto", "ppo_tokens")]
LANES = 3
READ_EVERY = 20  # control steps between two looks at the results, here
ON_GPU = "cuda"

# method -> dotted setting -> the value of its paper or of the code that came with it.
PAPER: dict[str, dict[str, Any]] = {
    "resfit": {
        "map.kind": "residual",
        "map.scale": 0.1,
        "map.per_chunk": False,
        "base_steps": 10_000,
        "burn_in": 10_000,
        "burn_in_target": "td",
        "utd": 4,
        "warmup_noise": 0.2 / 0.1,
        "base_noise": 0.0,
        "guard_window": 0,
        "learner.actor": "deterministic",
        "learner.hidden": [1024, 1024],
        "learner.layer_norm": True,
        "learner.heads": 10,
        "learner.target_subset": 2,
        "learner.critic_reduce": "mean",
        "learner.actor_reduce": "mean",
        "learner.weight_decay": 0.01,
        "learner.n_step": 3,
        "learner.gamma": 0.99,
        "learner.tau": 0.005,
        "learner.batch": 256,
        "learner.lr_actor": 1e-6,
        "learner.lr_critic": 1e-4,
        "learner.actor_delay": 4,
        "learner.grad_clip": 1.0,
        "learner.timeout_is_failure": True,
        "learner.explore_std": 0.05 / 0.1,
        "learner.target_std": 0.05 / 0.1,
        "learner.target_clip": 3.0,
        "learner.penalty": 0.0,
        "learner.gate": False,
        "mix.online": 0.5,
        "mix.demo": 0.5,
    },
    "dawn": {"map.kind": "residual", "mix.base": 0.25, "learner.layer_norm": True, "burn_in": 0},
    "dsrl_sac": {
        "learner.clip_std": True,
        "learner.log_std_min": -20.0,
        "algorithm": "off_policy",
        "map.kind": "steering",
        "map.magnitude": 1.5,
        "map.origin": "zero",
        "base_steps": 24_000,
        "guard_window": 0,
        "learner.activation": "tanh",
        "utd": 1.25,
        "reward_bias": -1.0,
        "learner.actor": "gaussian",
        "learner.heads": 2,
        "learner.actor_reduce": "min",
        "learner.lr_actor": 3e-4,
        "learner.lr_critic": 3e-4,
        "learner.tau": 0.005,
        "learner.batch": 256,
        "learner.alpha": 1.0,
        "learner.auto_alpha": True,
        "learner.target_entropy": 0.0,
        "learner.entropy_in_target": True,
        "learner.gamma": 0.9975,
        "learner.hidden": [128] * 3,
        "burn_in": 0,
    },
    "dsrl_na": {"algorithm": "noise_aliased", "map.magnitude": 1.5},  # the rest equals dsrl_sac, see below
    "lp_ds": {
        "map.origin": "gaussian",
        "learner.norm_bound": 0.25,
        "learner.entropy_in_target": False,
        "learner.auto_alpha": False,
    },
    "bro": {
        "map.kind": "direct",
        "base_steps": 2500,
        "utd": 10,
        "resets": [15_000, 50_000, 250_000, 500_000, 750_000, 1_000_000, 1_500_000, 2_000_000],
        "learner.network": "bronet",
        "learner.hidden": [256],
        "learner.critic_hidden": [512, 512],
        "learner.heads": 2,
        "learner.target_reduce": "mean",
        "learner.actor_reduce": "mean",
        "learner.critic_loss": "quantile",
        "learner.atoms": 100,
        "learner.gamma": 0.99,
        "learner.tau": 0.005,
        "learner.batch": 128,
        "learner.lr_actor": 3e-4,
        "learner.lr_critic": 3e-4,
        "learner.weight_decay": 1e-4,
        "learner.adam_beta2": 0.999,
        "learner.alpha": 1.0,
        "learner.auto_alpha": True,
        "learner.target_entropy": -0.5,
        "learner.entropy_in_target": True,
        "learner.optimism": True,
        "learner.optimism_kl": 0.05,
        "learner.optimism_std": 0.75,
    },
    "simba_v2": {
        "map.kind": "direct",
        "base_steps": 5000,
        "utd": 2,
        "learner.network": "simba_v2",
        "learner.hidden": [128],
        "learner.critic_hidden": [512, 512],
        "learner.heads": 2,
        "learner.target_reduce": "min",
        "learner.actor_reduce": "min",
        "learner.critic_loss": "c51",
        "learner.atoms": 101,
        "learner.v_min": -5.0,
        "learner.v_max": 5.0,
        "learner.normalize_obs": True,
        "learner.reward_scaling": "bounded",
        "learner.gamma": max(min((1000 / 5 - 1) / (1000 / 5), 0.995), 0.95),
        "learner.tau": 0.005,
        "learner.batch": 256,
        "learner.lr_actor": 1e-4,
        "learner.lr_critic": 1e-4,
        "learner.lr_end": 0.5,
        "learner.weight_decay": 0.0,
        "learner.alpha": 0.01,
        "learner.auto_alpha": True,
        "learner.target_entropy": -0.5,
        "learner.entropy_in_target": True,
    },
    "xqc": {
        "map.kind": "direct",
        "base_steps": 5000,
        "utd": 2,
        "learner.network": "xqc",
        "learner.hidden": [256] * 4,
        "learner.critic_hidden": [512] * 4,
        "learner.heads": 2,
        "learner.target_reduce": "min",
        "learner.actor_reduce": "min",
        "learner.actor_delay": 3,
        "learner.critic_loss": "c51",
        "learner.atoms": 101,
        "learner.v_min": -5.0,
        "learner.v_max": 5.0,
        "learner.normalize_obs": False,
        "learner.reward_scaling": "deviation",
        "learner.gamma": max(min((1000 / 5 - 1) / (1000 / 5), 0.995), 0.95),
        "learner.tau": 0.005,
        "learner.batch": 256,
        "learner.lr_actor": 3e-4,
        "learner.lr_critic": 3e-4,
        "learner.lr_end": 0.1,
        "learner.weight_decay": 0.0,
        "learner.alpha": 0.01,
        "learner.auto_alpha": True,
        "learner.target_entropy": -0.5,
        "learner.entropy_in_target": True,
    },
    "rlpd": {
        "learner.clip_std": True,
        "learner.log_std_min": -20.0,
        "map.kind": "direct",
        "base_steps": 5000,
        "burn_in": 0,
        "utd": 20,
        "learner.hidden": [256, 256],
        "learner.layer_norm": True,
        "learner.actor_norm": False,
        "learner.heads": 10,
        "learner.target_subset": 2,
        "learner.actor_reduce": "mean",
        "learner.actor_delay": 20,
        "learner.lr_actor": 3e-4,
        "learner.lr_critic": 3e-4,
        "learner.batch": 256,
        "learner.tau": 0.005,
        "learner.alpha": 1.0,
        "learner.auto_alpha": True,
        "learner.target_entropy": -0.5,
        "learner.entropy_in_target": True,
        "learner.n_step": 1,
        "mix.online": 0.5,
        "mix.demo": 0.5,
    },
    "wsrl": {
        "learner.clip_std": True,
        "learner.log_std_min": -11.51,
        "map.kind": "direct",
        "warmup": "actor",
        "base_steps": 5000,
        "burn_in": 0,
        "utd": 4,
        "reward_scale": 10.0,
        "reward_bias": -5.0,
        "learner.heads": 10,
        "learner.target_subset": 2,
        "learner.actor_reduce": "min",
        "learner.layer_norm": True,
        "learner.lr_actor": 1e-4,
        "learner.lr_critic": 3e-4,
        "learner.batch": 256,
        "learner.alpha": 1.0,
        "learner.target_entropy": -1.0,
        "learner.entropy_in_target": False,
        "guard_window": 0,
        "mix.online": 1.0,
        "mix.demo": 0.0,
    },
    "calql_offline": {
        "learner.clip_std": True,
        "learner.log_std_min": -11.51,
        "offline_updates": 20_000,
        "learner.conservative": 1.0,
        "learner.conservative_actions": 10,
        "mix.demo": 1.0,
        "learner.lr_actor": 1e-4,
        "learner.lr_critic": 3e-4,
        "learner.target_draws": 10,
        "learner.target_entropy": -1.0,
        "learner.entropy_in_target": False,
    },
    "rlif": {
        "learner.clip_std": True,
        "learner.log_std_min": -20.0,
        "reward_source": "interventions",
        "intervene": "expert",
        "intervention.error": 0.05,
        "intervention.steps": 4,
        "utd": 1,
        "learner.heads": 10,
        "learner.target_subset": 2,
        "learner.layer_norm": True,
        "learner.actor_norm": False,
        "learner.hidden": [256] * 3,
        "learner.target_entropy": -0.5,
        "learner.entropy_in_target": False,
        "mix.intervention": 0.5,
        "mix.online": 0.5,
    },
    "pld": {
        "map.kind": "residual",
        "map.per_chunk": False,
        "learner.actor": "gaussian",
        "learner.gate": False,
        "mix.online": 0.5,
        "mix.base": 0.5,
    },
    "policy_decorator": {
        "map.per_chunk": True,
        "map.scale": 0.1,
        "env_steps": 4 * 4_000_000,  # the code counts chunks of 4
        "ramp_steps": 4 * 100_000,
        "base_steps": 4 * 8000,
        "warmup_noise": 1.0,
        "utd": 0.25 / 4,
        "guard_window": 0,
        "learner.log_std_min": -20.0,
        "learner.init_std": 1.234e-4,
        "learner.hidden": [256] * 3,
        "learner.layer_norm": False,
        "learner.heads": 2,
        "learner.batch": 1024,
        "learner.tau": 0.01,
        "learner.lr_actor": 1e-4,
        "learner.lr_critic": 1e-4,
        "learner.grad_clip": 50.0,
        "learner.timeout_is_failure": False,
        "learner.target_entropy": -1.0,
        "learner.gamma": 0.9924,
    },
    "sac": {
        "map.kind": "direct",
        "learner.clip_std": True,
        "learner.log_std_min": -20.0,
        "learner.hidden": [256, 256],
        "learner.layer_norm": False,
        "learner.heads": 2,
        "learner.batch": 256,
        "learner.lr_actor": 3e-4,
        "learner.lr_critic": 3e-4,
        "learner.tau": 0.005,
        "learner.gamma": 0.99,
        "learner.alpha": 1.0,
        "learner.auto_alpha": True,
        "learner.target_entropy": -1.0,
        "learner.entropy_in_target": True,
        "utd": 1,
        "base_steps": 10_000,
    },
    "td3": {
        "map.kind": "direct",
        "learner.actor": "deterministic",
        "learner.hidden": [256, 256],
        "learner.layer_norm": False,
        "learner.heads": 2,
        "learner.batch": 256,
        "learner.lr_actor": 3e-4,
        "learner.actor_delay": 2,
        "learner.target_delay": 2,
        "learner.explore_std": 0.1,
        "learner.target_std": 0.2,
        "learner.target_clip": 0.5,
        "learner.tau": 0.005,
        "learner.actor_reduce": "first",
        "base_steps": 25_000,
    },
    "fast_td3": {
        "base_steps": 10 * 1024,
        "updates_per_step": 2,
        "replay_capacity": 1024 * 10 * 1024,
        "learner.actor": "deterministic",
        "learner.hidden": [512, 512 // 2, 512 // 4],
        "learner.critic_hidden": [1024, 1024 // 2, 1024 // 4],
        "learner.layer_norm": False,
        "learner.heads": 2,
        "learner.target_reduce": "min",
        "learner.actor_reduce": "min",
        "learner.critic_loss": "c51",
        "learner.atoms": 101,
        "learner.v_min": -10.0,
        "learner.v_max": 10.0,
        "learner.gamma": 0.97,
        "learner.tau": 0.1,
        "learner.n_step": 1,
        "learner.batch": 32768,
        "learner.lr_actor": 3e-4,
        "learner.lr_critic": 3e-4,
        "learner.weight_decay": 0.1,
        "learner.adam_beta2": 0.999,
        "learner.actor_delay": 2,
        "learner.target_delay": 1,
        "learner.explore_std": 0.4,
        "learner.explore_min_scale": 0.001 / 0.4,
        "learner.target_std": 0.001,
        "learner.target_clip": 0.5,
    },
    "fast_sac": {
        "updates_per_step": 8,
        "replay_capacity": 1024 * 4096,
        "learner.actor": "gaussian",
        "learner.hidden": [512, 512 // 2, 512 // 4],
        "learner.critic_hidden": [768, 768 // 2, 768 // 4],
        "learner.activation": "silu",
        "learner.layer_norm": True,
        "learner.heads": 2,
        "learner.target_reduce": "own",
        "learner.actor_reduce": "mean",
        "learner.critic_loss": "c51",
        "learner.atoms": 101,
        "learner.v_min": -20.0,
        "learner.v_max": 20.0,
        "learner.gamma": 0.97,
        "learner.tau": 0.125,
        "learner.n_step": 1,
        "learner.batch": 8192,
        "learner.lr_actor": 3e-4,
        "learner.lr_critic": 3e-4,
        "learner.weight_decay": 0.001,
        "learner.adam_beta2": 0.95,
        "learner.actor_delay": 4,
        "learner.target_delay": 1,
        "learner.init_std": round(float(np.exp(-2.5)), 3),
        "learner.alpha": 0.001,
        "learner.auto_alpha": True,
        "learner.target_entropy": 0.0,
        "learner.entropy_in_target": True,
    },
    "resip": {
        "algorithm": "ppo",
        "map.kind": "residual",
        "map.scale": 0.1,
        "map.per_chunk": False,
        "learner.hidden": [256, 256],
        "learner.gamma": 0.999,
        "learner.lr_actor": 3e-4,
        "learner.lr_critic": 5e-3,
        "learner.grad_clip": 1.0,
        "ppo.rollout": 700,
        "ppo.epochs": 50,
        "ppo.minibatches": 1,
        "ppo.target_kl": 0.1,
        "ppo.clip": 0.2,
        "ppo.gae_lambda": 0.95,
        "ppo.std": round(float(np.exp(-1.0)), 4),
        "ppo.normalize_reward": True,
        "ppo.clip_reward": 5.0,
        "ppo.value_bias": 0.25,
    },
    # Values that differ from the papers on purpose are on docs/algorithms/denoising.md.
    "dppo": {
        "algorithm": "denoising",
        "map.kind": "chain",
        "denoising.trained_steps": 10,
        "denoising.level": 1.0,
        "denoising.min_std": 0.1,
        "denoising.ratio": "transition",
        "denoising.random_step": "none",
        "denoising.reduce": "mean",
        "denoising.first_clip": 0.001,
        "denoising.clip_rate": 3.0,
        "denoising.discount": 0.99,
        "ppo.clip": 0.01,
        "ppo.target_kl": 1.0,
        "ppo.gae_lambda": 0.95,
        "learner.gamma": 0.999,
        "learner.hidden": [256, 256, 256],
        "learner.lr_critic": 1e-3,
    },
    "flow_sde": {
        "algorithm": "denoising",
        "denoising.level": 0.5,
        "denoising.noise_range": [],
        "denoising.random_step": "none",
        "denoising.ratio": "transition",
        "ppo.dual_clip": 3.0,
        "ppo.epochs": 4,
        "ppo.gae_lambda": 0.95,
        "learner.gamma": 0.99,
    },
    "flow_noise": {
        "algorithm": "denoising",
        "denoising.noise_range": [0.08, 0.16],
        "denoising.ratio": "chain",
        "denoising.reduce": "mean",
        "ppo.gae_lambda": 0.95,
        "learner.gamma": 0.99,
    },
    "reinflow": {
        "algorithm": "denoising",
        "denoising.noise_range": [0.10, 0.24],
        "denoising.ratio": "chain",
        "denoising.entropy": 0.03,
        "ppo.clip": 0.01,
        "learner.lr_actor": 4.5e-5,
    },
    "ppo_tokens": {
        "algorithm": "denoising",
        "map.kind": "tokens",
        "denoising.ratio": "chain",
        "denoising.reduce": "sum",
        "ppo.clip": 0.2,
        "ppo.gae_lambda": 0.95,
        "learner.gamma": 0.99,
    },
    "fpo": {
        "algorithm": "denoising",
        "map.kind": "draws",
        "map.draws": 8,
        "base_noise": 1.0,
        "deploy_noise": 0.0,
        "ppo.objective": "aspo",
        "denoising.reduce": "mean",
        "learner.gamma": 0.99,
        "ppo.gae_lambda": 0.95,
    },
    "grpo": {
        "algorithm": "denoising",
        "map.kind": "chain",
        "groups.size": 8,
        "groups.lowest": 0.1,
        "groups.highest": 0.9,
        "learner.gamma": 1.0,
        "ppo.normalize_reward": False,
        "denoising.ratio": "transition",
    },
    "idql": {"map.kind": "candidates", "map.edit": 0.0, "learner.expectile": 0.7, "learner.gamma": 0.99},
    "qc": {
        "map.kind": "candidates",
        "map.candidates": 32,
        "map.edit": 0.0,
        "learner.expectile": 0.0,
        "learner.heads": 2,
        "learner.tau": 0.005,
        "learner.lr_critic": 3e-4,
        "learner.gamma": 0.99,
    },
    "expo": {
        "map.kind": "candidates",
        "map.candidates": 8,
        "map.edit": 0.1,
        "learner.actor": "gaussian",
        "learner.heads": 10,
        "learner.target_subset": 2,
        "learner.lr_actor": 3e-4,
        "learner.gamma": 0.99,
    },
    "fql": {
        "map.kind": "head",
        "learner.heads": 2,
        "learner.actor_reduce": "mean",
        "learner.batch": 256,
        "learner.tau": 0.005,
        "learner.lr_actor": 3e-4,
        "learner.lr_critic": 3e-4,
        "learner.gamma": 0.99,
        "learner.distill": 10.0,
    },
    "recap": {
        "algorithm": "denoising",
        "map.kind": "draws",
        "ppo.objective": "imitation",
        "denoising.good_share": 0.3,
    },
    "awr": {
        "algorithm": "denoising",
        "map.kind": "draws",
        "ppo.objective": "regression",
        "ppo.max_weight": 20.0,
        "learner.gamma": 0.99,
        "ppo.gae_lambda": 0.95,
    },
}


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
        f"method.groups.size={min(2, config.groups.size)}",
        "method.groups.lowest=0",
        "method.groups.highest=1",
    ]
    return method(name, *settings, *overrides)


@pytest.fixture(scope="module")
def demos(tmp_path_factory: pytest.TempPathFactory) -> EpisodeStore:
    folder = tmp_path_factory.mktemp("demos") / "target"
    writer = DatasetWriter.create(folder, SPEC)
    for target in (2.5, 3.5):
        with writer.episode(task="reach", seed=0) as episode:
            for step in range(3):
                state = np.array([target, 1.0 + step], np.float32)
                episode.add({"state": state}, np.array([LIMIT], np.float32), reward=0.0)
            episode.commit(success=True, final_obs={"state": np.array([target, 4.0], np.float32)})
    return EpisodeStore(folder)


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


@pytest.mark.parametrize("name", METHODS)
def test_no_method_reads_the_device_in_its_loop(
    name: str, demos: EpisodeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the form for a GPU: no read between two looks at the results, no tensor on another device. PPO reads
    once per rollout.
    """
    monkeypatch.setattr("robo_rl.rl.collect.READ_EVERY", READ_EVERY)
    config = small(name, "method.utd=0.4")
    human = config.intervene != "none"
    env = DeviceWorld(LANES, intervened=human)
    base = DirectPolicy(SPEC).eval() if config.map.kind == "direct" else flow_policy(SPEC)
    built = build_session(
        config, base, env, seed=0, demos=demos if config.mix.demo > 0.0 else None, masked=True
    )
    tuner: Any = built.tuner
    tuner.collector.reset(env.reset(EpisodeSeeds(built.seed_root)), first_seeds(built.seed_root, LANES))
    while tuner.phase != "online" or tuner.env_steps % (READ_EVERY * LANES):
        tuner.advance()
    tuner.advance()
    with HostReads().watching() as found:
        for _ in range(READ_EVERY - 2):
            if config.algorithm in ON_POLICY:  # `advance` learns at the end of a rollout
                tuner.collector.begin(tuner._explore)
                tuner.collector.finish()
            else:
                tuner.advance()
    assert not found.reads, dict(found.reads)
    assert not found.strays, dict(found.strays)


def read(config: Any, key: str) -> Any:
    for part in key.split("."):
        config = getattr(config, part)
    return config


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_method_file_is_short_and_cites_its_source(path: Path) -> None:
    """At most 20 lines, a comment at the top, its own name inside."""
    text = path.read_text()
    assert len(text.splitlines()) <= 20
    assert text.startswith("# ")
    assert method(path.stem).name == path.stem


@pytest.mark.parametrize("name", PAPER)
def test_method_has_the_values_of_its_paper(name: str) -> None:
    """Value by value; a changed default elsewhere must not change a published recipe."""
    config = method(name)
    wrong = {key: read(config, key) for key, value in PAPER[name].items() if read(config, key) != value}
    assert not wrong


def test_every_published_method_is_checked() -> None:
    """All methods but this project's own."""
    assert set(PAPER) - {"ppo_tokens"} == set(METHODS) - {
        "steering",
        "residual",
        "residual_far",
        "residual_dense",
        "fast_residual",
        "residual_lanes",
        "residual_cautious",
        "denoising",
    }


@pytest.mark.parametrize(
    ("overrides", "word"),
    [
        (["bro", "method.learner.critic_hidden=[8,16]"], "must be equal"),
        (["bro", "method.algorithm=ppo"], "needs method.algorithm=off_policy"),
        (["qc", "method.resets=[10]"], "needs method.algorithm=off_policy"),
        (["bro", "method.encoder=learned"], "not an encoder of pictures"),
        (["simba_v2", "method.guard_window=10"], "weights of a fixed length"),
        (["residual", "method.learner.network=simba_v2"], "weights of a fixed length"),
        (["simba_v2", "method.encoder=learned"], "statistics of stored observations"),
        (["xqc", "method.encoder=learned"], "statistics of stored observations"),
        (["xqc", "method.map.kind=residual"], "weights of a fixed length"),
        (["resip", "method.learner.lr_end=0.5"], "needs method.algorithm=off_policy"),
    ],
)
def test_deep_critics_refuse_what_they_do_not_fit(overrides: list[str], word: str) -> None:
    config = method(*overrides)
    base = DirectPolicy(SPEC) if config.map.kind == "direct" else flow_policy(SPEC)
    with pytest.raises(ConfigError, match=word):
        check_together(config, build_map(config.map, base), base)


def test_dsrl_variants_differ_only_in_the_learner() -> None:
    """DSRL-NA keeps all values of DSRL-SAC, and replays demonstrations if there are some."""
    one, other = method("dsrl_sac"), method("dsrl_na")
    assert other.mix.demo > 0.0
    assert not other.needs_demos
    for name in ("name", "algorithm", "mix", "needs_demos"):
        setattr(other, name, getattr(one, name))
    assert one == other


@pytest.mark.parametrize("name", ["dsrl_na", "qc", "idql", "expo", "fql"])
def test_demonstrations_are_replayed_if_they_are_given(name: str, demos: EpisodeStore) -> None:
    """Half of each batch is of them; without any the method is the one of mix.demo=0 mix.online=1."""
    alone = small(name, "method.mix.demo=0", "method.mix.online=1")
    built = []
    for config, given in ((small(name), demos), (small(name), None), (alone, demos)):
        env = make_env(LANES)
        built.append(build_session(config, flow_policy(SPEC), env, seed=0, demos=given).tuner)
        env.close()
    shown, without, same = (tuner.mix for tuner in built)
    assert shown.fractions == {"online": 0.5, "demo": 0.5}
    assert len(shown["demo"]) == 2 * 3
    assert without.fractions == same.fractions == {"online": 1.0}
    assert without.stores.keys() == same.stores.keys() == {"online"}


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["fast_residual", "residual", "rlpd"])
def test_methods_with_demonstrations_train_on_a_gpu(name: str, demos: EpisodeStore) -> None:
    """All phases on the GPU, with updates as graphs and demonstrations in the replay."""
    config = small(name, "method.utd=0.4", "method.env_steps=600")
    env = DeviceWorld(LANES, device=ON_GPU)
    base = (DirectPolicy(SPEC) if config.map.kind == "direct" else flow_policy(SPEC)).eval().to(ON_GPU)
    built = build_session(config, base, env, seed=0, demos=demos, device=ON_GPU, masked=True)
    tuner: Any = built.tuner
    tuner.collector.reset(env.reset(EpisodeSeeds(built.seed_root)), first_seeds(built.seed_root, LANES))
    while not tuner.done:
        tuner.advance()
    assert tuner.learner.updates >= 100
    assert all(torch.isfinite(value).all() for value in tuner.learner.actor.state_dict().values())
    assert tuner.mix["demo"].head.device.type == ON_GPU


@pytest.mark.parametrize("name", METHODS)
def test_method_trains_end_to_end(name: str, demos: EpisodeStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """All phases of every method in small: weights change, stay finite, and the deployed policy acts."""
    built, env, base = session(small(name), demos, monkeypatch)
    tuner = built.tuner
    learned = [tuner.learner.actor]
    if small(name).map.kind == "candidates":  # by critics; some methods have no use for an actor
        learned.append(tuner.learner.critic)
    before = [value.clone() for net in learned for value in net.state_dict().values()]
    while not tuner.done:
        tuner.advance()
    env.close()
    assert tuner.learner.updates >= 2
    after = [value for net in learned for value in net.state_dict().values()]
    assert any(not torch.equal(a, b) for a, b in zip(before, after, strict=True))
    obs = {"state": torch.rand(5, base.obs_steps, 2)}
    chunk = built.policy.refine(obs, built.policy.sample(obs, torch.randn(5, base.chunk, 1))[:, 0])
    assert torch.isfinite(chunk).all()
    assert chunk.abs().max() <= 1.0


@pytest.mark.parametrize("name", [name for name in METHODS if name not in ("resip", "calql_offline")])
def test_method_starts_as_its_base(name: str, demos: EpisodeStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Step 0 equals the base bit for bit, at zero noise for origin zero."""
    built, env, base = session(small(name), demos, monkeypatch)
    env.close()
    if isinstance(base, DirectPolicy):
        return  # starts at u = 0 by itself: there is no base
    obs, noise = {"state": torch.rand(5, base.obs_steps, 2)}, torch.randn(5, base.chunk, 1)
    start = torch.zeros_like(noise) if getattr(built.tuner.learner.map, "origin", "") == "zero" else noise
    assert torch.equal(built.policy.sample(obs, noise), base.sample(obs, start))


def test_a_residual_may_have_deep_networks(demos: EpisodeStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """BroNet in residual and critics: it starts as its base, bit for bit, and learns in all phases."""
    words = ["network=bronet", "critic_loss=quantile", "target_reduce=mean", "reward_scaling=deviation"]
    built, env, base = session(
        small("residual", *(f"method.learner.{word}" for word in words)), demos, monkeypatch
    )
    obs, noise = {"state": torch.rand(5, base.obs_steps, 2)}, torch.randn(5, base.chunk, 1)
    first = base.sample(obs, noise)
    assert torch.equal(built.policy.refine(obs, first[:, 0]), first[:, 0])
    while not built.tuner.done:
        built.tuner.advance()
    env.close()
    assert torch.isfinite(built.policy.refine(obs, first[:, 0])).all()
    assert not torch.equal(built.policy.refine(obs, first[:, 0]), first[:, 0])


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["bro", "simba_v2", "xqc"])
def test_deep_critics_train_on_a_gpu(name: str) -> None:
    """Updates as graphs, a reset between them, and statistics on the device."""
    resets = "[500]" if name == "bro" else "[]"
    config = small(name, "method.utd=0.4", "method.env_steps=900", f"method.resets={resets}")
    env = DeviceWorld(LANES, device=ON_GPU)
    base = DirectPolicy(SPEC).eval().to(ON_GPU)
    built = build_session(config, base, env, seed=0, demos=None, device=ON_GPU, masked=True)
    tuner: Any = built.tuner
    tuner.collector.reset(env.reset(EpisodeSeeds(built.seed_root)), first_seeds(built.seed_root, LANES))
    while not tuner.done:
        tuner.advance()
    assert tuner.learner.updates >= 100
    assert tuner.resets_done == len(config.resets)
    assert all(torch.isfinite(value).all() for value in tuner.learner.actor.state_dict().values())


# A start from an earlier run


def finished_run(
    folder: Path,
    demos: EpisodeStore,
    monkeypatch: pytest.MonkeyPatch,
    *overrides: str,
    name: str = "calql_offline",
) -> TuningSession:
    """A run with one checkpoint, as written by the verb."""
    built, env, _ = session(small(name, *overrides), demos, monkeypatch)
    while not built.tuner.done:
        built.tuner.advance()
    run = RunDir.create(folder, FinetuneVerb(out=str(folder)))
    with run.new_checkpoint(built.tuner.env_steps) as checkpoint:
        save_state(checkpoint, {"tuner": built.tuner.state_dict()})
    env.close()
    return built


def test_init_loads_an_earlier_run(
    tmp_path: Path, demos: EpisodeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """WSRL loads actor, critics and temperature of the earlier run, not the moments of its optimisers."""
    earlier = finished_run(tmp_path / "earlier", demos, monkeypatch)
    alpha = earlier.tuner.learner.multipliers.log_alpha.item()
    assert alpha != 0.0
    built, env, _ = session(small("wsrl"), demos, monkeypatch)
    env.close()
    start_from(built.tuner, str(tmp_path / "earlier"))
    one, other = earlier.tuner.learner, built.tuner.learner
    pairs = [(other.actor, one.actor), (other.target_actor, one.target_actor)]
    pairs += [(other.critic, one.critic), (other.critics.target, one.critics.target)]
    for ours, theirs in pairs:
        found, expected = ours.state_dict(), theirs.state_dict()
        assert all(torch.equal(found[key], value) for key, value in expected.items())
    assert all(value.eq(0.0).all() for value in other.actor_opt.tensors())
    assert other.multipliers.log_alpha.item() == alpha
    fixed, env, _ = session(
        small("wsrl", "method.learner.auto_alpha=false", "method.learner.alpha=0.1"), demos, monkeypatch
    )
    env.close()
    start_from(fixed.tuner, str(tmp_path / "earlier"))
    assert fixed.tuner.learner.multipliers.alpha.item() == pytest.approx(0.1)


def test_init_loads_the_statistics_too(
    tmp_path: Path, demos: EpisodeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SimbaV2: the networks that are loaded saw observations by the earlier run's mean and deviation."""
    earlier = finished_run(tmp_path / "earlier", demos, monkeypatch, name="simba_v2")
    built, env, _ = session(small("simba_v2"), demos, monkeypatch)
    env.close()
    start_from(built.tuner, str(tmp_path / "earlier"))
    scales = [made.tuner.learner.scales for made in (earlier, built)]
    assert scales[0].obs.count > 1.0
    assert torch.equal(scales[0].obs.mean, scales[1].obs.mean)
    norms = [made.tuner.learner.actor.input_norm for made in (earlier, built)]
    assert torch.equal(norms[0].mean, norms[1].mean)
    assert norms[0].mean.ne(0.0).any()


def test_init_loads_a_head(tmp_path: Path, demos: EpisodeStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """FQL: the weights, and that the head acts in place of its base."""
    earlier = finished_run(tmp_path / "earlier", demos, monkeypatch, name="fql")
    built, env, _ = session(small("fql"), demos, monkeypatch)
    env.close()
    start_from(built.tuner, str(tmp_path / "earlier"))
    one, other = (made.tuner.learner.head for made in (earlier, built))
    assert other.ready
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


def test_ppo_refuses_ramp_steps(demos: EpisodeStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """ramp_steps lets the base act at random, but PPO needs the probability of every action."""
    with pytest.raises(ConfigError, match=r"method.ramp_steps=0"):
        session(small("resip", "method.ramp_steps=100"), demos, monkeypatch)


@pytest.mark.parametrize(
    ("overrides", "word"),
    [
        (["method.learner.hidden=[16]"], r"shape \(.*\), this method's"),
        (["method.learner.heads=2"], "has biases"),
    ],
)
def test_mismatched_init_is_refused(
    overrides: list[str], word: str, tmp_path: Path, demos: EpisodeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was found, what was expected, a remedy."""
    finished_run(tmp_path / "earlier", demos, monkeypatch)
    built, env, _ = session(small("wsrl", *overrides), demos, monkeypatch)
    env.close()
    with pytest.raises(CheckpointError, match=word):
        start_from(built.tuner, str(tmp_path / "earlier"))


@pytest.mark.parametrize(
    ("verb", "settings", "word"),
    [
        (
            "train",
            TrainConfig(data="d", out="o"),
            "a run of robo-rl train, .* init= accepts a run of robo-rl",
        ),
        ("finetune", FinetuneVerb(out="o", method=MethodConfig(algorithm="ppo")), "with PPO"),
        ("finetune", FinetuneVerb(out="o", method=MethodConfig(name="auto")), "residual/run"),
    ],
)
def test_init_from_another_kind_of_run_is_refused(
    verb: str,
    settings: Any,
    word: str,
    tmp_path: Path,
    demos: EpisodeStore,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its checkpoint is valid: the message names the kind and what init= accepts, and does not advise
    deletion.
    """
    monkeypatch.setattr("sys.argv", ["robo-rl", verb])
    run = RunDir.create(tmp_path / "other", settings)
    with run.new_checkpoint(1) as checkpoint:
        save_state(checkpoint, {"step": 1})
    built, env, _ = session(small("wsrl"), demos, monkeypatch)
    env.close()
    with pytest.raises(CheckpointError, match=word) as said:
        start_from(built.tuner, str(tmp_path / "other"))
    assert "elete" not in str(said.value)
    with pytest.raises(CheckpointError, match=word):
        empty_policy(SPEC, str(tmp_path / "other"), None)


def test_missing_or_unsupported_init_is_refused(demos: EpisodeStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """WSRL without `init`, and PPO with one."""
    for name, init, word in (("wsrl", None, "give init="), ("resip", "runs/x", "off-policy")):
        built, env, _ = session(small(name), demos, monkeypatch)
        env.close()
        with pytest.raises(ConfigError, match=word):
            start_from(built.tuner, init)


def test_states_are_normalised_by_the_demonstrations(demos: EpisodeStore) -> None:
    """Learning from scratch with demonstrations scales states to [-1, 1]."""
    policy = empty_policy(SPEC, None, str(demos.path))
    states = torch.tensor([[[2.5, 1.0]], [[3.5, 4.0]]])
    torch.testing.assert_close(policy.features({"state": states}), torch.tensor([[-1.0, -1.0], [1.0, 1.0]]))
    torch.testing.assert_close(empty_policy(SPEC, None, None).features({"state": states}), states[:, 0])


def test_empty_demonstrations_are_refused(tmp_path: Path) -> None:
    """A dataset without episodes gives a sentence, not NumPy's error on concatenation."""
    DatasetWriter.create(tmp_path / "data", SPEC)
    with pytest.raises(DataError, match="holds no complete episode"):
        empty_policy(SPEC, None, str(tmp_path / "data"))


def test_interventions_with_chunks_are_refused() -> None:
    """An intervention inside a chunk cannot be assigned: refused before anything is built."""
    with pytest.raises(ConfigError, match=r"per_chunk=false, or method\.reward_source=task"):
        check_together(method("rlif"), ResidualMap(2, 0.1, 8), flow_policy(SPEC))
    check_together(method("rlif"), ResidualMap(2, 0.1, 1), flow_policy(SPEC))


@pytest.mark.parametrize("name", ["steering", "dsrl_sac", "resip", "dppo"])
def test_interventions_are_not_credited_to_what_was_not_executed(name: str) -> None:
    """Critics of the noise, and PPO, judge the policy's own choice; a human's outcome is not its doing."""
    with pytest.raises(ConfigError, match=r"method\.intervene=none, or choose"):
        check_interventions(method(name, "method.intervene=expert"), "arm/lift")
    for other in ("dsrl_na", "residual"):
        check_interventions(method(other, "method.intervene=expert"), "arm/lift")


def test_rlif_needs_interventions(demos: EpisodeStore) -> None:
    """RLIF without intervene=expert, or without an expert, has no reward, so it is refused. Another method
    may go on without interventions.
    """
    with pytest.raises(ConfigError, match="intervene=expert"):
        check_interventions(method("rlif", "method.intervene=none"), "metaworld/reach-v3")
    for name, instead in (("rlif", "Learn from recorded"), ("rlpd", r"Set method\.intervene=none")):
        config = method(name, "method.intervene=expert")
        with pytest.raises(ConfigError, match=rf"'gym/Hopper-v5' does not have; .*\. {instead}"):
            check_interventions(config, "gym/Hopper-v5")
