"""Features that a store of decisions holds: flat ones, or those of a prefix where chunks are sampled from
them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import torch

from policies.registry import SavedPolicy
from policies.vla.packed import PackedPolicy, has_prefix
from robo_rl.conf.finetune import MethodConfig
from robo_rl.core.action_map import ActionMap
from robo_rl.core.spec import EnvSpec
from robo_rl.core.views import ALL, Views
from sim.registry import longest_instruction


def stored_base(method: MethodConfig, base: SavedPolicy, env: str) -> SavedPolicy | PackedPolicy:
    """The base with the features that a store of decisions holds.

    Those of a vision-language-action policy hold the prefix if the method samples chunks from stored
    decisions, and are the pooled ones otherwise.
    """
    if method.algorithm not in ("noise_aliased", "denoising") or not has_prefix(base):
        return base
    return PackedPolicy(base, longest_instruction(env))


def views_of(base: SavedPolicy | PackedPolicy) -> Views:
    """Stored features that actor and critics see."""
    return base.views if isinstance(base, PackedPolicy) else ALL


def with_packed_replay(
    method: MethodConfig, base: SavedPolicy, features: int, say: Callable[[str], None]
) -> MethodConfig:
    """The method with a replay of as many decisions as it makes, because one with a prefix is large."""
    decisions = math.ceil(1.25 * method.env_steps / base.execute)  # more than these if episodes end early
    capacity = min(method.replay_capacity, decisions)
    gigabytes = 2 * 4 * features * capacity / 1e9  # a decision holds two observations of float32
    say(
        f"The replay holds the prefix of {capacity} decisions, {gigabytes:.2g} GB. If that is too much, set "
        "method.replay_capacity."
    )
    return replace(method, replay_capacity=capacity)


def feature_dim(base: SavedPolicy | PackedPolicy, env: EnvSpec, device: torch.device | str = "cpu") -> int:
    """Width of the base's features."""
    zeros = {
        key: torch.zeros(1, base.obs_steps, *spec.shape, dtype=spec.torch_dtype, device=device)
        for key, spec in env.obs.items()
    }
    return int(base.features(zeros).shape[1])


def store_widths(base: SavedPolicy, features: int, action_map: ActionMap) -> dict[str, int]:
    """Sizes of the stored entries of a decision."""
    chunked = base.execute if action_map.timescale == "chunk" else 1
    return {
        "obs": features,
        "ctx": action_map.ctx_dim,
        "critic_action": action_map.critic_dim,
        "action": base.action_spec.dim * chunked,
        "next_obs": features,
        "next_ctx": action_map.ctx_dim,
    }
