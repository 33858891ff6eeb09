"""Replay buffers of a fine-tuning run, and what they hold: features of the base, prefixes, or pictures."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch

from policies.checkpoint import check_compatible
from policies.registry import SavedPolicy
from policies.tuned.privileged import TrueState
from policies.vla.packed import PackedPolicy
from robo_rl.apps.tuning.encoders.pictures import (
    LearnedPictures,
    ReplaySize,
    bytes_of_decision,
    check_memory,
    demo_frames,
    memory_of,
    replay_size,
    size_words,
)
from robo_rl.apps.tuning.maps import packs_prefixes
from robo_rl.apps.tuning.start import env_name
from robo_rl.conf.finetune import ON_POLICY, FinetuneVerb, MethodConfig
from robo_rl.core.action_map import ActionMap
from robo_rl.core.conditioning import empty_memory
from robo_rl.core.errors import ConfigError
from robo_rl.core.spec import EnvSpec
from robo_rl.core.views import ALL, Views
from robo_rl.data.replay import Replay
from robo_rl.data.store import EpisodeStore
from robo_rl.rl.demo_outcomes import (
    DemoEpisode,
    DemoOutcome,
    recorded_outcome,
    success_outcome,
    take_over_outcome,
)
from robo_rl.rl.demos import WITHOUT_DEMOS, check_noise_is_known, chosen_episodes, demo_replay, replayable
from robo_rl.rl.mix import MixConfig
from robo_rl.rl.progress.shaping import PotentialShaping
from robo_rl.rl.running import RewardTransform
from sim.registry import has_dense_reward, longest_instruction

INTERVENTION_REWARD = -1.0  # reward of the step before a human takes over (RLIF)


def base_noise(method: MethodConfig) -> float:
    """Scale of the base's initial noise in training.

    Steering explores over the noise distribution of the base's training, whatever its origin.
    """
    return 1.0 if method.map.kind == "steering" else method.base_noise


def reward_transform(method: MethodConfig) -> RewardTransform:
    """Reward of a method. With the interventions as reward, the task's own is not used."""
    if method.reward_source == "interventions":
        return RewardTransform(0.0, 0.0, INTERVENTION_REWARD)
    return RewardTransform(method.reward_scale, method.reward_bias)


def with_given_demos(method: MethodConfig, given: bool) -> MethodConfig:
    """The method with the share of demonstrations left to the other buffers if none are given and the method
    does not need them.
    """
    mix = method.mix
    if given or method.needs_demos or not 0.0 < mix.demo < 1.0:
        return method
    left = 1.0 - mix.demo
    shares = {name: share / left for name, share in vars(mix).items() if name != "demo"}
    return replace(method, mix=MixConfig(**shares, demo=0.0))


def check_demos(method: MethodConfig, given: bool) -> None:
    """Raise ConfigError for a method that cannot replay demonstrations, and for one that needs some if none
    are given.
    """
    if method.mix.demo == 0.0:
        return
    check_noise_is_known(
        steering=method.map.kind == "steering", noise_aliased=method.algorithm == "noise_aliased"
    )
    if with_given_demos(method, given).mix.demo > 0.0 and not given:
        raise ConfigError(
            f"method={method.name} replays demonstrations: give demos=<dataset>, or train without them "
            "by method.mix.demo=0 method.mix.online=1."
        )


def outcomes_of(method: MethodConfig, *, dense_reward: bool) -> Callable[[DemoEpisode], DemoOutcome]:
    """Rewards and ends of demonstrations, see `demo_replay`."""
    if method.reward_source == "interventions":
        return take_over_outcome
    return recorded_outcome if dense_reward else success_outcome


def check_replayed(
    method: MethodConfig,
    base: SavedPolicy,
    config: FinetuneVerb,
    without: str = WITHOUT_DEMOS,
) -> None:
    """Raise ConfigError for demonstrations of a run that the method would replay and cannot: before anything
    is created. without: what to do instead, for the message.
    """
    if (demos := config.demos) is None or method.mix.demo == 0.0 or method.algorithm in ON_POLICY:
        return
    outcome_of = outcomes_of(method, dense_reward=has_dense_reward(env_name(config), config.reward))
    human = method.demo_steps == "human"
    store = EpisodeStore(demos, complete_only=True)
    replayable(store, base, outcome_of, human_only=human, without=without)
    _check_take_overs(method, store)


def size_of(
    method: MethodConfig, base: SavedPolicy | PackedPolicy, action_map: ActionMap, lanes: int
) -> ReplaySize:
    """Size of the replay of training with pictures."""
    steps = base.execute if action_map.timescale == "chunk" else 1
    return replay_size(method, lanes, steps, base.obs_steps)


def build_stores(
    method: MethodConfig,
    base: SavedPolicy | PackedPolicy,
    lanes: int,
    widths: dict[str, int],
    action_map: ActionMap,
    demos: EpisodeStore | None,
    dense_reward: bool,
    device: torch.device | str = "cpu",
    pictures: LearnedPictures | None = None,
    shaping: PotentialShaping | None = None,
    hidden: TrueState | None = None,
) -> dict[str, Replay]:
    """Replay buffers that the method's mix names. base: the one whose features are stored. shaping: of the
    rewards of demonstrations, as of others. hidden: what is stored instead of features; None: the features.
    """
    names = [
        name
        for name in ("online", "base", "intervention")
        if name == "online" or getattr(method.mix, name) > 0.0
    ]
    check_demos(method, demos is not None)
    replayed = demos if method.mix.demo > 0.0 else None
    if pictures is None:
        with _enough_memory(method.replay_capacity, len(names), widths):
            stores = {name: Replay(method.replay_capacity, lanes, widths, device=device) for name in names}
        learned: dict[str, Any] = {} if hidden is None else {"encoder": hidden}
    else:
        failed = method.reward_source == "interventions"
        shown = [] if replayed is None else chosen_episodes(replayed, failed=failed)
        size = size_of(method, base, action_map, lanes)
        check_memory(memory_of(size, pictures, widths, shown), pictures)
        ring = pictures.ring(size.frames, lanes)
        stores = {"online": Replay(size.decisions * lanes, lanes, widths, device=device, frames=ring)}
        learned = {
            "encoder": pictures.encoder,
            "frames": lambda episodes: pictures.ring(demo_frames(episodes, base.obs_steps), 1),
        }
    if replayed is not None:
        check_compatible(base, replayed.spec, str(replayed.path))
        gamma, reward = method.learner.gamma, reward_transform(method)
        outcome_of = outcomes_of(method, dense_reward=dense_reward)
        scale = reward.scale if reward.before_intervention is None else reward.before_intervention
        _check_take_overs(method, replayed)
        stores["demo"] = demo_replay(
            replayed, base, action_map, widths, gamma, base_noise(method), scale, reward.bias, outcome_of,
            human_only=method.demo_steps == "human", device=device,
            noise_aliased=method.algorithm == "noise_aliased", shaping=shaping, **learned,
        )  # fmt: skip
    return stores


def with_fitting_replay(method: MethodConfig, lanes: int) -> MethodConfig:
    """The method with a replay of no more decisions than the run can store: one of every lane at every step,
    and one more. Nothing is overwritten earlier, so the samples are the same.

    For lanes that step together: of actors, one may make all steps.
    """
    most = lanes * (math.ceil(method.env_steps / lanes) + 1)
    return replace(method, replay_capacity=min(method.replay_capacity, most))


@contextmanager
def _enough_memory(decisions: int, stores: int, widths: Mapping[str, int]) -> Iterator[None]:
    """Raise ConfigError where PyTorch cannot allocate replays of this size."""
    try:
        yield
    except RuntimeError as error:  # what PyTorch raises on every device when an allocation fails
        each = stores * bytes_of_decision(widths)
        raise ConfigError(
            f"The replay needs {size_words(decisions * each)} of memory for {decisions} steps of this "
            f"observation ({widths['obs']} numbers), which could not be allocated. Set "
            f"method.replay_capacity={max(1, 10**9 // each)} for a replay of 1 GB, or as many as fit."
        ) from error


def _check_take_overs(method: MethodConfig, demos: EpisodeStore) -> None:
    """Raise ConfigError if the recorded interventions are the only reward, and nobody takes over in any
    episode, because every reward would then be 0.
    """
    if method.reward_source != "interventions" or method.mix.online > 0.0:
        return
    if not any(bool(take_over_outcome(each).reward.any()) for each in chosen_episodes(demos, failed=True)):
        raise ConfigError(
            f"No human takes over from a policy in {demos.path}, so every reward would be 0. Record a "
            "running policy and take over, or learn from the task's reward: method.reward_source=task."
        )


def stored_base(method: MethodConfig, base: SavedPolicy, env: str) -> SavedPolicy | PackedPolicy:
    """The base with the features that a store of decisions holds.

    Those of a vision-language-action policy hold the prefix if the method samples chunks from stored
    decisions, and are the pooled ones otherwise.
    """
    return PackedPolicy(base, longest_instruction(env)) if packs_prefixes(method, base) else base


def views_of(base: SavedPolicy | PackedPolicy) -> Views:
    """Stored features that actor and critics see."""
    return base.views if isinstance(base, PackedPolicy) else ALL


def with_packed_replay(
    method: MethodConfig,
    base: SavedPolicy,
    features: int,
    demos: EpisodeStore | None,
    say: Callable[[str], None],
) -> MethodConfig:
    """The method with a replay of as many decisions as it makes, because one with a prefix is large."""
    decisions = math.ceil(1.25 * method.env_steps / base.execute)  # more than these if episodes end early
    capacity = min(method.replay_capacity, decisions)
    shown = 0
    if demos is not None and method.mix.demo > 0.0:
        shown = sum(episode.frames for episode in chosen_episodes(demos))
    gigabytes = 2 * 4 * features * (capacity + shown) / 1e9  # a decision holds two observations of float32
    also = f" and {shown} demonstrated ones" if shown else ""
    fewer = " or give fewer demonstrations" if shown else ""
    say(
        f"The replay holds the prefix of {capacity} decisions{also}, {gigabytes:.2g} GB. If that is too "
        f"much, set method.replay_capacity{fewer}."
    )
    return replace(method, replay_capacity=capacity)


def feature_dim(base: SavedPolicy | PackedPolicy, env: EnvSpec, device: torch.device | str = "cpu") -> int:
    """Width of the base's features."""
    zeros = {
        key: torch.zeros(1, base.obs_steps, *spec.shape, dtype=spec.torch_dtype, device=device)
        for key, spec in env.obs.items()
    }
    return int(base.features(zeros | empty_memory(base, 1, device)).shape[1])


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
