"""Settings of PPO on the transitions of a denoising chain, or on action tokens. Each named method is a set of
these values.
"""

from __future__ import annotations

from dataclasses import dataclass

from robo_rl.core.errors import ConfigError
from robo_rl.core.settings import one_of, setting


@dataclass
class DenoisingConfig:
    """Which transitions are stochastic, with how much noise, and how their ratios are formed."""

    trained_steps: int | None = setting(
        None,
        "largest number of last transitions that are stochastic and trained; earlier ones follow the "
        "deterministic path; none: all",
        at_least=1,
    )
    level: float = setting(
        1.0, "noise level of the transitions: eta of DDIM, coefficient a of Flow-SDE", at_least=0.0
    )
    min_std: float = setting(
        0.02,
        "transitions with a smaller standard deviation are deterministic and have no ratio",
        at_least=0.0,
    )
    random_step: str = one_of(
        "none",
        "rollout",
        "decision",
        help="none: all trained transitions are stochastic; rollout, decision: one at random, drawn for each",
    )
    noise_range: list[float] = setting(
        [], "smallest and largest standard deviation of learned noise; []: noise of the process", at_least=0.0
    )
    noise_hidden: list[int] = setting([64, 64], "neurons of the hidden layers of the noise network")
    ratio: str = one_of("transition", "chain", help="one ratio for every transition, or one for the chain")
    reduce: str = one_of(
        "mean", "sum", help="log-probability of a chunk (and chain): mean or sum of elements"
    )
    first_clip: float | None = setting(
        None,
        "clip of the earliest trained transition, from which it grows to ppo.clip; none: ppo.clip",
        above=0.0,
    )
    clip_rate: float = setting(3.0, "growth rate of that clip", above=0.0)
    discount: float = setting(
        1.0,
        "factor of the advantage per transition that follows in the chain",
        at_least=0.0,
        at_most=1.0,
    )
    progressive: float = setting(
        0.0,
        "share of the rounds over which the stochastic transitions grow from the last to all; 0: all at once",
        at_least=0.0,
        at_most=1.0,
    )
    guidance: float = setting(
        0.0,
        "map.kind=draws: guidance towards chunks of high advantage, the weight w of RECAP; 0: no labels",
        at_least=0.0,
    )
    good_share: float = setting(
        0.3,
        "guidance: share of a rollout's decisions, those of the highest advantage, labelled good",
        above=0.0,
    )
    label_drop: float = setting(
        0.3, "guidance: share of decisions that are learned without their label", at_least=0.0, at_most=1.0
    )
    temperature: float = setting(
        1.0, "map.kind=tokens: temperature of the logits in rollouts and ratios", above=0.0
    )
    entropy: float = setting(0.0, "weight of the entropy of learned noise, or of tokens", at_least=0.0)


def check_tokens(cfg: DenoisingConfig) -> None:
    """Raise ConfigError for settings of transitions, which tokens do not have."""
    plain, used = DenoisingConfig(ratio="chain"), ("reduce", "temperature", "entropy")
    for name in vars(plain):
        if name not in used and getattr(cfg, name) != getattr(plain, name):
            raise ConfigError(
                f"Action tokens have one ratio for the executed part of a chunk, and no use for "
                f"method.denoising.{name}={getattr(cfg, name)}. Set it to {getattr(plain, name)}."
            )


def check_denoising(cfg: DenoisingConfig, draws: int = 0) -> None:
    """Raise ConfigError for settings that exclude each other."""
    if cfg.temperature != 1.0:
        raise ConfigError(
            "Only action tokens have a temperature: set method.denoising.temperature=1, or "
            "method.map.kind=tokens."
        )
    if draws and (cfg.noise_range or cfg.random_step != "none" or cfg.progressive):
        raise ConfigError(
            "Draws of the training loss need no stochastic transitions: set method.denoising.noise_range=[], "
            "method.denoising.random_step=none and method.denoising.progressive=0, or method.map.kind=chain."
        )
    if cfg.guidance and not draws:
        raise ConfigError(
            "Labels are learned by the loss of behaviour cloning: set method.map.kind=draws, or "
            "method.denoising.guidance=0."
        )
    if cfg.noise_range and (len(cfg.noise_range) != 2 or not 0.0 < cfg.noise_range[0] < cfg.noise_range[1]):
        raise ConfigError(
            f"method.denoising.noise_range={cfg.noise_range} cannot be used, expected: [smallest, largest], "
            "both above 0."
        )
    if cfg.entropy and not cfg.noise_range:
        raise ConfigError(
            "The noise of the process has a fixed entropy: set method.denoising.entropy=0, or learn the "
            "noise by method.denoising.noise_range=[0.08,0.16]."
        )
    if cfg.ratio == "chain" and (cfg.random_step != "none" or cfg.first_clip is not None):
        raise ConfigError(
            "One ratio for the chain needs all trained transitions and a single clip: set "
            "method.denoising.random_step=none and method.denoising.first_clip=null."
        )
    if cfg.ratio == "chain" and cfg.discount != 1.0:
        raise ConfigError(
            "One ratio for the chain has one advantage: set method.denoising.discount=1, or "
            "method.denoising.ratio=transition."
        )
