"""Settings of off-policy learners. Each named method (ResFiT, DSRL, RLPD, ...) is a set of these values."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from robo_rl.core.errors import ConfigError
from robo_rl.core.settings import check_settings, one_of, setting
from robo_rl.nets.actor import LOG_STD_MAX, LOG_STD_MIN
from robo_rl.nets.support import Quantiles, Support

# Settings that every off-policy learner reads, but for its targets and its actor
READ_BY_CRITICS = frozenset(
    {"network", "normalize_obs", "reward_scaling", "hidden", "critic_hidden", "layer_norm", "heads", "gamma"}
    | {
        "tau",
        "n_step",
        "batch",
        "lr_critic",
        "lr_end",
        "precision",
        "weight_decay",
        "adam_beta2",
        "grad_clip",
    }
    | {"target_delay", "critic_reduce", "timeout_is_failure", "return_floor", "actor"}
)
DEEP_LOG_STD_MIN = -10.0  # of the actors of deep networks, as in the codes of their authors


@dataclass
class LearnerConfig:
    """One learner: `actor` chooses SAC (gaussian) or TD3 (deterministic)."""

    actor: str = one_of("gaussian", "deterministic", help="gaussian: SAC; deterministic: TD3")
    network: str = one_of(
        "mlp",
        "bronet",
        "simba_v2",
        "xqc",
        help="layers of actor and critics: a plain MLP, residual blocks with LayerNorm (BRO), blocks on the "
        "unit sphere (SimbaV2), or an MLP with batch norms and weights of length 1 (XQC)",
    )
    normalize_obs: bool = setting(
        False, "running mean and deviation of observations in actor and critics; not for mlp"
    )
    reward_scaling: str = one_of(
        "none",
        "deviation",
        "bounded",
        help="divide rewards by the deviation of running returns; bounded: by more where the largest return "
        "would exceed v_max",
    )
    hidden: list[int] = setting(
        [128, 128],
        "neurons of the hidden layers of actor and critics; bronet, simba_v2: of each block",
        at_least=1,
    )
    critic_hidden: list[int] | None = setting(
        None, "neurons of the hidden layers of the critics; none: same as hidden", at_least=1
    )
    activation: str = one_of("relu", "tanh", "silu", help="mlp: activation of the actor's hidden layers")
    layer_norm: bool = setting(True, "mlp: LayerNorm in actor and critics")
    actor_norm: bool | None = setting(None, "mlp: LayerNorm in the actor; none: same as layer_norm")
    heads: int = setting(2, "critics in the ensemble", at_least=1)
    target_subset: int = setting(2, "random critics whose minimum is the target (REDQ)", at_least=1)
    target_reduce: str = one_of(
        "min",
        "own",
        "mean",
        help="value of the next decision: minimum over target_subset critics, each critic's own, or the mean",
    )
    target_draws: int = setting(
        1, "SAC: draws of the next action; the target takes the one of highest value (CQL)", at_least=1
    )
    critic_loss: str = one_of(
        "mse",
        "c51",
        "hl_gauss",
        "quantile",
        help="squared error of Q, cross-entropy of a distribution of returns on atoms, or Huber loss of its "
        "quantiles",
    )
    atoms: int = setting(101, "c51, hl_gauss: number of atoms; quantile: of quantiles", at_least=2)
    v_min: float = setting(-10.0, "c51, hl_gauss: first atom, at most the lowest return")
    v_max: float = setting(10.0, "c51, hl_gauss: last atom, at least the highest return")
    critic_reduce: str = one_of(
        "sum",
        "mean",
        help="loss over critics: sum, so that each learns as if it were alone, or mean; they differ in what "
        "grad_clip bounds",
    )
    actor_reduce: str = one_of(
        "min", "mean", "first", help="Q that the actor maximises: min or mean over critics, or the first"
    )
    gamma: float = setting(0.99, "discount per environment step", at_least=0.0, at_most=1.0)
    tau: float = setting(
        0.01, "step size of the target networks towards their networks", at_least=0.0, at_most=1.0
    )
    n_step: int = setting(1, "decisions in a return before it bootstraps", at_least=1)
    batch: int = setting(128, "decisions per update", at_least=1)
    lr_actor: float = setting(3e-4, "learning rate of the actor and of the multipliers", at_least=0.0)
    lr_critic: float = setting(3e-4, "learning rate of the critics", at_least=0.0)
    lr_end: float = setting(
        1.0, "learning rates at the last step, as a share of the first ones; they fall linearly", above=0.0
    )
    precision: str = one_of(
        "float32",
        "bfloat16",
        help="number format of the inputs of matrix products in updates, on a GPU of the critics' alone; "
        "weights, sums and losses are float32",
    )
    weight_decay: float = setting(
        0.0, "decay of all weights per update, times the rate (AdamW)", at_least=0.0
    )
    adam_beta2: float = setting(0.999, "Adam's decay of squared gradients, in [0, 1)", at_least=0.0)
    actor_delay: int = setting(1, "critic updates per actor update", at_least=1)
    target_delay: int = setting(1, "critic updates per step of the target networks", at_least=1)
    grad_clip: float = setting(
        0.0, "bound on the norm of the actor's and the critics' gradients; 0: no bound", at_least=0.0
    )
    deploy_target: bool = setting(
        False, "TD3: the policy has the target networks, averages over the last 1 / tau updates"
    )
    timeout_is_failure: bool = setting(False, "true: the value after a time-out is 0; false: bootstrapped")
    return_floor: bool = setting(False, "lower bound of targets: the decision's Monte-Carlo return (MCAC)")
    init_std: float = setting(1.0, "SAC: initial standard deviation before the tanh")
    log_std_min: float | None = setting(
        None, "SAC: lower end of the log standard deviation; none: -5 for mlp, -10 for other networks"
    )
    clip_std: bool = setting(
        False, "SAC: the log standard deviation is clipped to its range; false: squashed into it by a tanh"
    )
    alpha: float = setting(0.02, "SAC: entropy weight; with auto_alpha its initial value", at_least=0.0)
    auto_alpha: bool = setting(False, "SAC: tune alpha to target_entropy")
    target_entropy: float = setting(0.0, "SAC with auto_alpha, in nats per dimension of u")
    entropy_in_target: bool = setting(False, "SAC: true: soft backup; false: hard backup")
    optimism: bool = setting(
        False, "SAC: a second actor explores, towards actions on which the critics disagree (BRO)"
    )
    optimism_kl: float = setting(
        0.05, "optimism: divergence of the two actors that is aimed at [nats per dimension of u]", above=0.0
    )
    optimism_std: float = setting(
        0.75, "optimism: standard deviation of exploration, as a share of the actor's", above=0.0
    )
    explore_std: float = setting(0.1, "TD3: exploration noise in units of u", at_least=0.0)
    explore_correlation: float = setting(0.0, "correlation of exploration noise between steps, in [0, 1)")
    explore_min_scale: float = setting(
        1.0,
        "TD3: smallest noise scale of a parallel environment, as a fraction of explore_std; they are evenly "
        "spaced",
    )
    target_std: float = setting(0.1, "TD3: target smoothing noise in units of u", at_least=0.0)
    target_clip: float = setting(0.5, "TD3: clip of target smoothing noise", at_least=0.0)
    penalty: float = setting(0.0, "weight of E||u||^2", at_least=0.0)
    norm_bound: float = setting(
        0.0, "LP-DS: bound on E[shift^2] per noise element, held by a multiplier; 0: no bound", at_least=0.0
    )
    conservative: float = setting(
        0.0, "SAC: weight of Cal-QL's term, for offline learning; 0: no term", at_least=0.0
    )
    conservative_actions: int = setting(10, "actions per kind and state in that term", at_least=1)
    distill: float = setting(
        1.0, "FQL: weight of the squared distance between the head's chunk and the base's", at_least=0.0
    )
    expectile: float = setting(
        0.0,
        "map.kind=candidates: targets from V, this expectile of Q over executed chunks (IQL), in (0, 1); 0: "
        "from the best candidate",
        at_least=0.0,
    )
    gate: bool = setting(
        False, "use u only where its Q exceeds that of u = 0 (the base), in acting and in targets"
    )
    gate_margin: float = setting(
        0.0, "margin of a deployed gate, in standard deviations over critics; falls to 0", at_least=0.0
    )


def check_learner(cfg: LearnerConfig) -> None:
    """Raise ConfigError that names the first invalid setting."""
    check_settings(cfg, "learner.")
    if not 0.0 < cfg.gamma <= 1.0 or not 0.0 < cfg.tau <= 1.0:
        raise ConfigError(
            f"learner.gamma and learner.tau must lie in (0, 1], found {cfg.gamma} and {cfg.tau}."
        )
    if cfg.expectile >= 1.0:
        raise ConfigError(f"learner.expectile must lie in [0, 1), found {cfg.expectile}.")
    if cfg.adam_beta2 >= 1.0:
        raise ConfigError(f"learner.adam_beta2 must lie in [0, 1), found {cfg.adam_beta2}.")
    if not 0.0 <= cfg.explore_correlation < 1.0:
        raise ConfigError(f"learner.explore_correlation must lie in [0, 1), found {cfg.explore_correlation}.")
    if not 0.0 <= cfg.explore_min_scale <= 1.0:
        raise ConfigError(f"learner.explore_min_scale must lie in [0, 1], found {cfg.explore_min_scale}.")
    _check_actor(cfg)
    _check_critics(cfg)
    _check_optimism(cfg)
    if cfg.network == "xqc":
        _check_xqc(cfg)
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


def check_read(
    cfg: LearnerConfig, read: frozenset[str], learner: str, advice: Mapping[str, str] | None = None
) -> None:
    """Raise ConfigError for a setting of the learner that is not read, and so would have no effect.

    learner: what does not read it, for the message. advice: more for the user, by setting.
    """
    plain = LearnerConfig()
    for name in vars(plain):
        if name not in read and getattr(cfg, name) != getattr(plain, name):
            more = f" {advice[name]}" if advice and name in advice else ""
            raise ConfigError(
                f"{learner} has no use for method.learner.{name}={getattr(cfg, name)}. Set it to "
                f"{getattr(plain, name)}.{more}"
            )


def _check_xqc(cfg: LearnerConfig) -> None:
    if not cfg.hidden:
        raise ConfigError(
            "learner.network=xqc needs at least one hidden layer, found learner.hidden=[]. Set, for example, "
            "learner.hidden=[512,512]."
        )
    if cfg.gate or cfg.conservative > 0.0 or cfg.actor != "gaussian" or cfg.batch < 2 or cfg.target_draws > 1:
        raise ConfigError(
            "learner.network=xqc learns from joint passes of two decisions by batch norms: set "
            "learner.actor=gaussian, gate=false, conservative=0, target_draws=1 and a batch of at least 2."
        )


def _check_actor(cfg: LearnerConfig) -> None:
    low, high = lowest_log_std(cfg), LOG_STD_MAX
    if cfg.actor == "gaussian" and not low < high:
        raise ConfigError(f"learner.log_std_min must be below {high:g}, found {low:g}.")
    if cfg.actor == "gaussian" and not math.exp(low) < cfg.init_std < math.exp(high):
        raise ConfigError(
            f"learner.init_std must lie between exp(log_std_min) = {math.exp(low):.2g} and "
            f"{math.exp(high):.3g}, found {cfg.init_std}."
        )
    if cfg.deploy_target and cfg.actor != "deterministic":
        raise ConfigError(
            "learner.deploy_target needs a target actor, which SAC has not: set learner.actor=deterministic."
        )


def _check_critics(cfg: LearnerConfig) -> None:
    support_of(cfg)
    if cfg.target_draws > 1 and (cfg.actor != "gaussian" or cfg.critic_loss not in ("mse", "hl_gauss")):
        raise ConfigError(
            "learner.target_draws takes the highest of several values of SAC's actions: set "
            "learner.actor=gaussian and critic_loss=mse or hl_gauss, or target_draws=1."
        )
    if cfg.normalize_obs and cfg.network == "mlp":
        raise ConfigError(
            "learner.normalize_obs is part of the networks bronet, simba_v2 and xqc: set learner.network, or "
            "normalize_obs=false."
        )
    if cfg.reward_scaling == "bounded" and (cfg.critic_loss not in ("c51", "hl_gauss") or cfg.v_max <= 0.0):
        raise ConfigError(
            "learner.reward_scaling=bounded keeps returns below learner.v_max, which must be positive and "
            f"needs critic_loss=c51 or hl_gauss, found v_max={cfg.v_max} and critic_loss={cfg.critic_loss}."
        )
    if cfg.critic_loss in ("c51", "quantile") and cfg.return_floor:
        raise ConfigError(
            f"learner.return_floor bounds values, and learner.critic_loss={cfg.critic_loss} learns "
            "distributions: set critic_loss=mse or hl_gauss."
        )


def _check_optimism(cfg: LearnerConfig) -> None:
    if not cfg.optimism:
        return
    if cfg.actor != "gaussian" or cfg.heads < 2 or cfg.critic_loss not in ("mse", "quantile"):
        raise ConfigError(
            "learner.optimism explores where critics disagree, around a Gaussian actor: it needs "
            "learner.actor=gaussian, heads of at least 2 and critic_loss=mse or quantile, found "
            f"{cfg.actor}, {cfg.heads} and {cfg.critic_loss}."
        )
    if cfg.gate:
        raise ConfigError(
            "learner.gate returns to the base where the critics prefer it, and learner.optimism explores "
            "against their mean: set one of them to false."
        )


def lowest_log_std(cfg: LearnerConfig) -> float:
    """Lower end of the range of a Gaussian actor's log standard deviation."""
    if cfg.log_std_min is not None:
        return cfg.log_std_min
    return LOG_STD_MIN if cfg.network == "mlp" else DEEP_LOG_STD_MIN


def support_of(cfg: LearnerConfig) -> Support | Quantiles | None:
    """Atoms or quantiles of the critics; None for critics that give Q itself. Raises ConfigError if atoms
    make no range.
    """
    if cfg.critic_loss == "quantile":
        return Quantiles(cfg.atoms)
    return None if cfg.critic_loss == "mse" else Support(cfg.atoms, cfg.v_min, cfg.v_max)
