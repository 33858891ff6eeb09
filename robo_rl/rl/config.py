"""Configuration of off-policy learners. Every named method (ResFiT, DSRL, RLPD, ...) is a set of these values."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class LearnerConfig:
    """One learner: `actor` chooses SAC (gaussian) or TD3 (deterministic)."""

    actor: str = "gaussian"  # gaussian: SAC; deterministic: TD3
    hidden: list[int] = field(default_factory=lambda: [128, 128])
    layer_norm: bool = True  # LayerNorm in actor and critics
    heads: int = 2  # critics in the ensemble
    target_subset: int = 2  # random heads whose minimum is the target
    actor_reduce: str = "min"  # the actor climbs the min or the mean of all heads
    gamma: float = 0.99  # discount per environment step
    tau: float = 0.01  # speed of the target networks
    n_step: int = 1  # decisions in a return before it bootstraps
    batch: int = 128
    lr_actor: float = 3e-4
    lr_critic: float = 3e-4
    actor_delay: int = 1  # critic updates per actor update
    grad_clip: float = 0.0  # norm bound of the actor's and the critics' gradients; 0 is none
    timeout_is_failure: bool = False  # True: a time-out is worth 0; False: it is bootstrapped
    init_std: float = 1.0  # SAC: standard deviation before the tanh at the start
    alpha: float = 0.02  # SAC: entropy weight, or its start when auto_alpha
    auto_alpha: bool = False  # SAC: tune alpha to target_entropy
    target_entropy: float = 0.0  # SAC with auto_alpha, in nats
    entropy_in_target: bool = False  # SAC: soft backup; False is the hard backup
    explore_std: float = 0.1  # TD3: exploration noise in units of u
    target_std: float = 0.1  # TD3: target smoothing noise in units of u
    target_clip: float = 0.5  # TD3: its clip
    penalty: float = 0.0  # weight of E||u||^2
    norm_bound: float = 0.0  # LP-DS: bound on E[shift^2] per noise element, by a multiplier; 0 is none
    gate: bool = False  # choose between u and the base's u = 0 by Q, when acting and when bootstrapping
