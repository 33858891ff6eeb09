"""Replay buffers of a fine-tuning run, with features of the base or with pictures."""

from __future__ import annotations

from typing import Any

import torch

from policies.checkpoint import check_compatible
from policies.registry import SavedPolicy
from robo_rl.apps.tuning.pictures import (
    LearnedPictures,
    ReplaySize,
    check_memory,
    demo_frames,
    memory_of,
    replay_size,
)
from robo_rl.conf.finetune import MethodConfig
from robo_rl.core.action_map import ActionMap
from robo_rl.core.errors import ConfigError
from robo_rl.data.replay import Replay
from robo_rl.data.store import EpisodeStore
from robo_rl.rl.demos import chosen_episodes, demo_replay
from robo_rl.rl.running import RewardTransform

INTERVENTION_REWARD = -1.0  # reward of the step before a human takes over (RLIF)


def reward_transform(method: MethodConfig) -> RewardTransform:
    """Reward of a method. With the interventions as reward, the task's own is not used."""
    if method.reward_source == "interventions":
        return RewardTransform(0.0, 0.0, INTERVENTION_REWARD)
    return RewardTransform(method.reward_scale, method.reward_bias)


def check_demos(method: MethodConfig, given: bool) -> None:
    """Raise ConfigError for a method that replays demonstrations if none are given."""
    if method.mix.demo > 0.0 and not given:
        raise ConfigError(
            f"method={method.name} replays demonstrations: give demos=<dataset>, or train without them "
            "by method.mix.demo=0 method.mix.online=1."
        )


def size_of(method: MethodConfig, base: SavedPolicy, action_map: ActionMap, lanes: int) -> ReplaySize:
    """Size of the replay of training with pictures."""
    steps = base.execute if action_map.timescale == "chunk" else 1
    return replay_size(method, lanes, steps, base.obs_steps)


def build_stores(
    method: MethodConfig,
    base: SavedPolicy,
    lanes: int,
    widths: dict[str, int],
    action_map: ActionMap,
    demos: EpisodeStore | None,
    dense_reward: bool,
    device: torch.device | str = "cpu",
    pictures: LearnedPictures | None = None,
) -> dict[str, Replay]:
    """Replay buffers that the method's mix names."""
    names = [
        name
        for name in ("online", "base", "intervention")
        if name == "online" or getattr(method.mix, name) > 0.0
    ]
    check_demos(method, demos is not None)
    replayed = demos if method.mix.demo > 0.0 else None
    if pictures is None:
        stores = {name: Replay(method.replay_capacity, lanes, widths, device=device) for name in names}
        learned: dict[str, Any] = {}
    else:
        shown = [] if replayed is None else chosen_episodes(replayed)
        size = size_of(method, base, action_map, lanes)
        check_memory(memory_of(size, pictures, widths, shown), pictures)
        ring = pictures.ring(size.frames, lanes)
        stores = {"online": Replay(size.decisions * lanes, lanes, widths, device=device, frames=ring)}
        learned = {
            "encoder": pictures.encoder,
            "frames": lambda episodes: pictures.ring(demo_frames(episodes, base.obs_steps), 1),
        }
    if replayed is not None:
        check_compatible(base, replayed.spec)
        gamma, reward = method.learner.gamma, reward_transform(method)
        stores["demo"] = demo_replay(
            replayed, base, action_map, widths, gamma, method.base_noise, reward.scale, reward.bias,
            recorded=dense_reward and method.reward_source == "task", device=device, **learned,
        )  # fmt: skip
    return stores
