"""Advantages of GRPO: episodes from the same start are compared with one another, so that no critic is needed
(Shao et al. 2024, "DeepSeekMath", section 4.1).
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from robo_rl.core.errors import ConfigError
from robo_rl.core.settings import setting
from robo_rl.core.shapes import Bool, Float, Int
from robo_rl.rl.off_policy.config import LearnerConfig
from robo_rl.rl.on_policy.ppo import PpoConfig


@dataclass
class GroupConfig:
    """Episodes that share their start, and which groups are learned from."""

    size: int = setting(0, "episodes from the same start; 0: no groups, advantages from a critic", at_least=0)
    lowest: float = setting(0.1, "groups whose mean success is lower are left out", at_least=0.0, at_most=1.0)
    highest: float = setting(
        0.9, "groups whose mean success is higher are left out", at_least=0.0, at_most=1.0
    )
    by_length: bool = setting(
        True, "each episode has the same weight, whatever its length; false: each decision has"
    )


def check_groups(config: GroupConfig, *, normalized: bool, draws: bool, growing: bool = False) -> None:
    """Raise ConfigError for settings that do not fit together.

    normalized: rewards are divided by their scale. draws: the base's noise alone explores. growing: the
    number of stochastic transitions changes, and decisions do not name theirs.
    """
    if config.size == 0:
        for name in ("lowest", "highest", "by_length"):
            value, usual = getattr(config, name), getattr(GroupConfig(), name)
            if value != usual:
                raise ConfigError(
                    f"Without groups, method.groups.{name}={value} has no effect: give method.groups.size=8, "
                    f"or set it to {usual}."
                )
        return
    if config.size == 1 or config.lowest > config.highest:
        raise ConfigError(
            f"method.groups.size={config.size} with success from {config.lowest} to {config.highest} leaves "
            "nothing to compare: use size=2 or more, and lowest below highest."
        )
    if normalized:
        raise ConfigError(
            "Advantages are normalised within each group, which cancels a scale of the rewards: set "
            "method.ppo.normalize_reward=false."
        )
    if growing:
        raise ConfigError(
            "Decisions of incomplete groups wait for the next round, which has other stochastic transitions: "
            "with method.groups and method.denoising.progressive set method.denoising.random_step=decision."
        )
    if draws:
        raise ConfigError(
            "All episodes of a group have the same initial noise, and method.map.kind=draws explores by it "
            "alone: set method.map.kind=chain, or method.groups.size=0."
        )


def check_rounds(config: GroupConfig, rollout: int, lanes: int, longest: int) -> None:
    """Raise ConfigError if no group can be complete within two rounds, after which its decisions are dropped:
    they were made by older and older policies.

    rollout: control steps of each lane in a round. longest: those of the longest episode.
    """
    if rollout < longest:
        raise ConfigError(
            f"Groups of episodes need rollouts of at least one episode, {longest} steps, found "
            f"method.ppo.rollout={rollout}. Raise it, or shorten episodes by max_episode_steps."
        )
    of_lane = 2 * (rollout // longest)  # episodes of full length in two rounds
    if lanes * of_lane < config.size:
        raise ConfigError(
            f"method.groups.size={config.size} episodes of {longest} steps do not fit into two rounds of "
            f"method.ppo.rollout={rollout} steps in {lanes} parallel environments: nothing would be learned. "
            f"Set num_envs={-(-config.size // of_lane)} or more, "
            f"method.ppo.rollout={longest * -(-config.size // (2 * lanes))} or more, or "
            f"method.groups.size={lanes * of_lane} or less."
        )


def check_without_critic(learner: LearnerConfig, ppo: PpoConfig) -> None:
    """Raise ConfigError for settings of the critic and its advantages, which groups do not read."""
    unread = {
        "learner": (learner, ("critic_hidden", "lr_critic", "timeout_is_failure")),
        "ppo": (ppo, ("gae_lambda", "critic_warmup", "value_bias", "clip_reward")),
    }
    for part, (given, names) in unread.items():
        for name in names:
            value, usual = getattr(given, name), getattr(type(given)(), name)
            if value != usual:
                raise ConfigError(
                    f"Advantages of groups need no critic, and have no use for method.{part}.{name}={value}. "
                    f"Set it to {usual}."
                )


def group_advantage(
    group: Int[Tensor, " e"],
    total: Float[Tensor, " e"],
    success: Bool[Tensor, " e"],
    config: GroupConfig,
) -> tuple[Float[Tensor, " e"], Bool[Tensor, " e"], Bool[Tensor, " e"]]:
    """(advantages, episodes of complete groups, those of them to learn from) of e ended episodes.

    group: number that the episodes of one start share. A = (return - mean) / std within the group; 0 where
    all returns are equal.
    """
    numbers, index, count = group.unique(return_inverse=True, return_counts=True)

    def mean(values: Float[Tensor, " e"]) -> Float[Tensor, " g"]:
        means: Tensor = values.new_zeros(len(numbers)).index_add(0, index, values) / count
        return means

    centred = total - mean(total)[index]
    std = mean(centred.square()).sqrt()[index]
    complete = (count == config.size)[index]
    rate = mean(success.to(total.dtype))[index]
    return centred / (std + 1e-6), complete, complete & (rate >= config.lowest) & (rate <= config.highest)
