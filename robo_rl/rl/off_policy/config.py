"""Configuration of off-policy learners. Every named method (ResFiT, DSRL, RLPD, ...) is a set of these
values.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from robo_rl.core.errors import ConfigError
from robo_rl.core.settings import check_settings, one_of, setting


@dataclass
class LearnerConfig:
    """One learner: `actor` chooses SAC (gaussian) or TD3 (deterministic)."""

    actor: str = one_of("gaussian", "deterministic", help="gaussian: SAC; deterministic: TD3")
    hidden: list[int] = setting([128, 128], "neurons of the hidden layers of actor and critics")
    activation: str = one_of("relu", "tanh", help="of the actor's hidden layers")
    layer_norm: bool = setting(True, "LayerNorm in actor and critics")
    actor_norm: bool | None = setting(None, "LayerNorm in the actor; none: as layer_norm says")
    heads: int = setting(2, "critics in the ensemble", at_least=1)
    target_subset: int = setting(2, "random heads whose minimum is the target", at_least=1)
    actor_reduce: str = one_of(
        "min", "mean", "first", help="the actor climbs the min or the mean of all heads, or one"
    )
    gamma: float = setting(0.99, "discount per environment step", at_least=0.0, at_most=1.0)
    tau: float = setting(0.01, "speed of the target networks", at_least=0.0, at_most=1.0)
    n_step: int = setting(1, "decisions in a return before it bootstraps", at_least=1)
    batch: int = setting(128, "decisions per update", at_least=1)
    lr_actor: float = setting(3e-4, "learning rate of the actor and of the multipliers", at_least=0.0)
    lr_critic: float = setting(3e-4, "learning rate of the critics", at_least=0.0)
    actor_delay: int = setting(1, "critic updates per actor update", at_least=1)
    target_delay: int = setting(1, "critic updates per step of the target networks", at_least=1)
    grad_clip: float = setting(
        0.0, "norm bound of the actor's and the critics' gradients; 0 is none", at_least=0.0
    )
    timeout_is_failure: bool = setting(False, "True: a time-out is worth 0; False: it is bootstrapped")
    return_floor: bool = setting(
        False, "targets no lower than the return that the decision's episode really brought (MCAC)"
    )
    init_std: float = setting(1.0, "SAC: standard deviation before the tanh at the start")
    alpha: float = setting(0.02, "SAC: entropy weight, or its start when auto_alpha", at_least=0.0)
    auto_alpha: bool = setting(False, "SAC: tune alpha to target_entropy")
    target_entropy: float = setting(0.0, "SAC with auto_alpha, in nats per dimension of u")
    entropy_in_target: bool = setting(False, "SAC: soft backup; False is the hard backup")
    explore_std: float = setting(0.1, "TD3: exploration noise in units of u", at_least=0.0)
    explore_correlation: float = setting(0.0, "of a step's exploration noise with the last step's, in [0, 1)")
    explore_least: float = setting(
        1.0, "TD3: explore_std of the calmest lane, as a share; the lanes between are spaced evenly"
    )
    target_std: float = setting(0.1, "TD3: target smoothing noise in units of u", at_least=0.0)
    target_clip: float = setting(0.5, "TD3: its clip", at_least=0.0)
    penalty: float = setting(0.0, "weight of E||u||^2", at_least=0.0)
    norm_bound: float = setting(
        0.0, "LP-DS: bound on E[shift^2] per noise element, by a multiplier; 0 is none", at_least=0.0
    )
    conservative: float = setting(
        0.0, "SAC: weight of Cal-QL's term, for learning from data alone; 0 is none", at_least=0.0
    )
    conservative_actions: int = setting(10, "actions per kind and state in that term", at_least=1)
    gate: bool = setting(
        False, "choose between u and the base's u = 0 by Q, when acting and when bootstrapping"
    )
    gate_margin: float = setting(
        0.0, "deployed, u has to be better by so many std of the heads; falls to 0", at_least=0.0
    )


def check_learner(cfg: LearnerConfig) -> None:
    """Raise ConfigError naming the first setting that makes no learner."""
    check_settings(cfg, "learner.")
    if not 0.0 < cfg.gamma <= 1.0 or not 0.0 < cfg.tau <= 1.0:
        raise ConfigError(
            f"learner.gamma and learner.tau must lie in (0, 1], found {cfg.gamma} and {cfg.tau}."
        )
    if not 0.0 <= cfg.explore_correlation < 1.0:
        raise ConfigError(f"learner.explore_correlation must lie in [0, 1), found {cfg.explore_correlation}.")
    if not 0.0 <= cfg.explore_least <= 1.0:
        raise ConfigError(f"learner.explore_least is a share, in [0, 1], found {cfg.explore_least}.")
    if cfg.actor == "gaussian" and not math.exp(-5.0) < cfg.init_std < math.exp(2.0):
        raise ConfigError(f"learner.init_std must lie in (0.0068, 7.38), found {cfg.init_std}.")
    if cfg.conservative > 0.0 and cfg.actor != "gaussian":
        raise ConfigError(
            "learner.conservative weighs actions by their density: it needs learner.actor=gaussian."
        )
    if cfg.return_floor and cfg.entropy_in_target:
        raise ConfigError(
            "learner.return_floor compares targets with returns, which hold no entropy: set "
            "entropy_in_target=false."
        )
    if cfg.auto_alpha and cfg.alpha <= 0.0:
        raise ConfigError(
            "learner.auto_alpha starts from learner.alpha, which must then be positive, found 0."
        )
