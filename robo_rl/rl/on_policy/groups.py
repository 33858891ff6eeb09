"""Advantages of GRPO: episodes from the same start are compared with one another, so that no critic is needed
(Shao et al. 2024, "DeepSeekMath", section 4.1).
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from robo_rl.core.errors import ConfigError
from robo_rl.core.settings import setting
from robo_rl.core.shapes import Bool, Float, Int


@dataclass
class GroupConfig:
    """Episodes that share their start, and which groups are learned from."""

    size: int = setting(0, "episodes from the same start; 0: no groups, advantages from a critic", at_least=0)
    lowest: float = setting(0.1, "groups whose mean success is lower are left out", at_least=0.0, at_most=1.0)
    highest: float = setting(
        0.9, "groups whose mean success is higher are left out", at_least=0.0, at_most=1.0
    )


def check_groups(config: GroupConfig, *, normalized: bool, draws: bool, growing: bool = False) -> None:
    """Raise ConfigError for settings that do not fit together.

    normalized: rewards are divided by their scale. draws: the base's noise alone explores. growing: the
    number of stochastic transitions changes, and decisions do not name theirs.
    """
    if config.size == 0:
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
