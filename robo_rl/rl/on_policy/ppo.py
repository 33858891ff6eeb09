"""Formulas of proximal policy optimisation (Schulman et al. 2017), without networks, environments or
state.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from robo_rl.core.errors import ConfigError
from robo_rl.core.settings import one_of, setting
from robo_rl.core.shapes import Bool, Float
from robo_rl.rl.off_policy.losses import Info


@dataclass
class PpoConfig:
    """Settings of PPO alone. Discount, networks and learning rates are settings of the learner."""

    rollout: int = setting(700, "control steps of each parallel environment between two rounds", at_least=1)
    epochs: int = setting(50, "largest number of passes over a rollout", at_least=1)
    minibatches: int = setting(1, "minibatches per pass", at_least=1)
    target_kl: float = setting(0.1, "KL divergence after which no further pass is made", at_least=0.0)
    clip: float = setting(0.2, "clip of the probability ratio", above=0.0)
    dual_clip: float = setting(
        0.0,
        "objective=clip: bound on the loss of a bad decision, a multiple of its advantage above 1; 0: none",
        at_least=0.0,
    )
    objective: str = one_of(
        "clip",
        "aspo",
        "regression",
        "imitation",
        help="what the actor maximises: PPO's clipped surrogate; aspo: the same, with a quadratic bound for "
        "bad decisions; regression: log-probabilities weighted by exp(advantage / temperature); imitation: "
        "log-probabilities, which only the head's labels tell apart",
    )
    temperature: float = setting(1.0, "objective=regression: temperature of the weights", above=0.0)
    max_weight: float = setting(20.0, "objective=regression: largest weight", above=0.0)
    kept_rounds: int = setting(
        1,
        "objective=regression, imitation: rounds whose decisions are learned from, the newest included",
        at_least=1,
    )
    gae_lambda: float = setting(
        0.95, "lambda of GAE: 0 uses the critic alone, 1 the return", at_least=0.0, at_most=1.0
    )
    std: float = setting(0.37, "initial standard deviation of u, before the map scales it", at_least=0.0)
    final_std: float = setting(
        0.0, "final standard deviation of u, reached geometrically; 0: constant", at_least=0.0
    )
    squash: bool = setting(False, "apply tanh to the mean")
    normalize_reward: bool = setting(True, "divide rewards by the running standard deviation of returns")
    clip_reward: float = setting(5.0, "clip of normalised rewards", at_least=0.0)
    value_bias: float = setting(0.25, "initial output of the critic")
    critic_warmup: int = setting(0, "first rounds, in which only the critic learns", at_least=0)
    warmup: int = setting(5, "rounds of learning rate warm-up; a cosine decay follows", at_least=0)


def check_objective(config: PpoConfig) -> None:
    """Raise ConfigError for settings that do not fit the objective."""
    if 0.0 < config.dual_clip <= 1.0:
        raise ConfigError(
            f"ppo.dual_clip={config.dual_clip} bounds the loss of bad decisions from the first update on, so "
            "that nothing is learned from them: give a bound above 1, e.g. 3, or 0 for none."
        )
    if config.dual_clip and config.objective != "clip":
        raise ConfigError(
            f"ppo.objective={config.objective} has no use for ppo.dual_clip={config.dual_clip}. Set it to 0, "
            "or ppo.objective=clip."
        )
    if config.kept_rounds > 1 and config.objective not in ("regression", "imitation"):
        raise ConfigError(
            f"ppo.objective={config.objective} compares with the policy that made the decisions: set "
            "ppo.kept_rounds=1, or ppo.objective=regression or imitation."
        )


def check_rollout(config: PpoConfig, lanes: int, steps: int = 1, left_out: int = 0) -> None:
    """Raise ConfigError if a rollout may hold too few decisions, each of `steps` control steps, for its
    minibatches.

    left_out: decisions that a lane may lose at the ends of a rollout. A minibatch needs two decisions: the
    standardised advantage of a single one is always 0.
    """
    per_lane, needed = config.rollout // steps - left_out, 2 * config.minibatches
    if lanes * per_lane >= needed:
        return
    enough = steps * (-(-needed // lanes) + left_out)
    raise ConfigError(
        f"method.ppo.rollout={config.rollout} in {lanes} parallel environments, at {steps} control steps per "
        f"decision, may yield only {lanes * max(0, per_lane)} decisions; "
        f"method.ppo.minibatches={config.minibatches} needs {needed}, two in each. Set "
        f"method.ppo.rollout={enough} or more, raise num_envs, or lower method.ppo.minibatches."
    )


def gae(
    reward: Float[Tensor, "n t"],
    discount: Float[Tensor, "n t"],
    value: Float[Tensor, "n t"],
    next_value: Float[Tensor, "n t"],
    terminated: Bool[Tensor, "n t"],
    ended: Bool[Tensor, "n t"],
    lam: float,
) -> Float[Tensor, "n t"]:
    """Generalised advantage estimation (Schulman et al. 2016, eq. 16), n lanes of t decisions.

    delta = r + gamma^steps V(s') - V(s) and A = delta + gamma^steps lambda A'. A termination drops V(s'). A
    time-out keeps it, and `next_value` is then the value of the last observation. No sum crosses an end
    (`ended`).
    """
    delta = reward + discount * next_value.masked_fill(terminated, 0.0) - value
    carry = (discount * lam).masked_fill(ended, 0.0)
    advantage, running = torch.empty_like(delta), delta.new_zeros(len(delta))
    for t in range(delta.shape[1] - 1, -1, -1):
        running = delta[:, t] + carry[:, t] * running
        advantage[:, t] = running
    return advantage


def normal_log_prob(u: Float[Tensor, "b d"], mean: Float[Tensor, "b d"], std: float) -> Float[Tensor, " b"]:
    """log N(u; mean, std^2 I)."""
    constant = u.shape[-1] * (math.log(std) + 0.5 * math.log(2.0 * math.pi))
    return -0.5 * ((u - mean) / std).square().sum(-1) - constant


def clipped_surrogate(
    log_prob: Float[Tensor, " b"],
    old: Float[Tensor, " b"],
    advantage: Float[Tensor, " b"],
    clip: float | Float[Tensor, " b"],
    dual_clip: float = 0.0,
) -> tuple[Tensor, Info]:
    """-E[min(ratio A, clip(ratio, 1 - clip, 1 + clip) A)] (eq. 7).

    dual_clip c > 1: where A < 0, the minimum is at least c A (Ye et al. 2020, eq. 5); 0: no such bound.
    """
    log_ratio = log_prob - old
    gain = _clipped_gain(log_ratio.exp(), advantage, clip)
    if dual_clip:
        gain = torch.where(advantage < 0.0, torch.maximum(gain, dual_clip * advantage), gain)
    loss = -gain.mean()
    return loss, ratio_info(loss, log_ratio, clip)


def asymmetric_surrogate(
    log_prob: Float[Tensor, " b"],
    old: Float[Tensor, " b"],
    advantage: Float[Tensor, " b"],
    clip: float | Float[Tensor, " b"],
) -> tuple[Tensor, Info]:
    """`clipped_surrogate` where A >= 0; ratio A - |A| (ratio - 1)^2 / (2 clip) where A < 0.

    FPO++ (Yi et al. 2026, eq. 11-12). The gradient of a bad decision does not stop at the clip: beyond it,
    it leads back.
    """
    log_ratio = log_prob - old
    ratio = log_ratio.exp()
    good = _clipped_gain(ratio, advantage, clip)
    bad = ratio * advantage - advantage.abs() * (ratio - 1.0).square() / (2.0 * clip)
    loss = -torch.where(advantage >= 0.0, good, bad).mean()
    return loss, ratio_info(loss, log_ratio, clip)


def _clipped_gain(
    ratio: Float[Tensor, " b"], advantage: Float[Tensor, " b"], clip: float | Float[Tensor, " b"]
) -> Float[Tensor, " b"]:
    """min(ratio A, clip(ratio, 1 - clip, 1 + clip) A)."""
    low: Any = 1.0 - clip  # both numbers, or both tensors
    high: Any = 1.0 + clip
    return torch.minimum(ratio * advantage, ratio.clamp(low, high) * advantage)


def weighted_regression(
    log_prob: Float[Tensor, " b"],
    old: Float[Tensor, " b"],
    advantage: Float[Tensor, " b"],
    clip: float | Float[Tensor, " b"],
    config: PpoConfig,
) -> tuple[Tensor, Info]:
    """-E[min(exp(A / temperature), max_weight) log pi] (advantage-weighted regression, Peng et al. 2019).

    `old` and `clip` are for the logs alone.
    """
    weight = (advantage / config.temperature).exp().clamp(max=config.max_weight)
    loss = -(weight * log_prob).mean()
    return loss, ratio_info(loss, log_prob - old, clip) | {"actor/weight": weight.mean()}


def surrogate(
    config: PpoConfig,
    log_prob: Float[Tensor, " b"],
    old: Float[Tensor, " b"],
    advantage: Float[Tensor, " b"],
    clip: float | Float[Tensor, " b"],
) -> tuple[Tensor, Info]:
    """Loss of the actor for `config.objective`."""
    if config.objective == "aspo":
        return asymmetric_surrogate(log_prob, old, advantage, clip)
    if config.objective == "imitation":
        loss = -log_prob.mean()
        return loss, ratio_info(loss, log_prob - old, clip)
    if config.objective == "regression":
        return weighted_regression(log_prob, old, advantage, clip, config)
    return clipped_surrogate(log_prob, old, advantage, clip, config.dual_clip)


@torch.no_grad()
def ratio_info(loss: Tensor, log_ratio: Float[Tensor, " b"], clip: float | Float[Tensor, " b"]) -> Info:
    """Logs of an actor's loss: the KL estimate E[(ratio - 1) - log ratio], the share beyond the clip, and the
    largest |ratio - 1|.
    """
    ratio = log_ratio.exp()
    kl, error = ((ratio - 1.0) - log_ratio).mean(), (ratio - 1.0).abs()
    return {
        "actor/loss": loss.detach(),
        "actor/kl": kl,
        "actor/clipped": (error > clip).float().mean(),
        "actor/ratio_error": error.amax(),
    }


def value_loss(value: Float[Tensor, " b"], returns: Float[Tensor, " b"]) -> tuple[Tensor, Info]:
    """Half the mean squared error."""
    loss = 0.5 * (value - returns).square().mean()
    return loss, {"critic/loss": loss.detach(), "critic/value": value.detach().mean()}


def explained_variance(advantage: Float[Tensor, " b"], returns: Float[Tensor, " b"]) -> Float[Tensor, ""]:
    """1 - Var(returns - V) / Var(returns) of the critic before an update: 1 predicts all returns, 0 is a
    constant, below 0 is worse than one. `advantage` is returns - V. The smallest variance used is 1e-8.
    """
    return 1.0 - advantage.var(correction=0) / returns.var(correction=0).clamp(min=1e-8)


def standardized(advantage: Float[Tensor, " b"]) -> Float[Tensor, " b"]:
    """Advantages with mean 0 and standard deviation 1; zeros if all are equal."""
    centred = advantage - advantage.mean()
    return centred / (centred.square().mean().sqrt() + 1e-8)


def learning_rate_factor(done: int, total: int, warmup: int) -> float:
    """Factor of the learning rate after `done` rounds: from 1 / (warmup + 1) linear to 1 over `warmup`, then
    a cosine to 0 at `total`.
    """
    if done < warmup:
        return (done + 1) / (warmup + 1)
    share = (done - warmup) / max(1, total - warmup)
    return 0.5 * (1.0 + math.cos(math.pi * min(1.0, share)))


def exploration_std(config: PpoConfig, share: float) -> float:
    """std (final_std / std)^share: standard deviation of u after a fraction `share` of training."""
    if config.final_std <= 0.0:
        return config.std
    return float(config.std * (config.final_std / config.std) ** min(1.0, share))


class RewardScale:
    """Rewards divided by the running standard deviation of discounted returns, clipped."""

    def __init__(self, lanes: int, clip: float, device: torch.device | str = "cpu") -> None:
        self.clip = clip
        self._running = torch.zeros(lanes, device=device)  # discounted returns so far of the running episodes
        self._count, self._mean, self._square = 1e-4, 0.0, 0.0

    def __call__(
        self,
        reward: Float[Tensor, "n t"],
        discount: Float[Tensor, "n t"],
        ended: Bool[Tensor, "n t"],
        valid: Bool[Tensor, "n t"],
        restarted: Bool[Tensor, " n"] | None = None,
    ) -> Float[Tensor, "n t"]:
        """Update the running moments with these rewards, then scale them. The `valid` entries of a row come
        first. restarted: rows that begin with a new episode, although the last one was not seen to end.
        """
        if restarted is not None:
            self._running = self._running.masked_fill(restarted, 0.0)
        seen = []
        for t in range(reward.shape[1]):
            row = valid[:, t]
            grown = self._running * discount[:, t] + reward[:, t]
            seen.append(grown[row])
            self._running = torch.where(row, grown.masked_fill(ended[:, t], 0.0), self._running)
        self._merge(torch.cat(seen).double())
        return (reward / math.sqrt(self._square / self._count + 1e-8)).clamp(-self.clip, self.clip)

    def _merge(self, returns: Tensor) -> None:
        """Merge a sample into the running moments (Chan et al. 1979)."""
        count, mean = len(returns), float(returns.mean())
        gap, total = mean - self._mean, self._count + count
        self._square += float((returns - mean).square().sum()) + gap * gap * self._count * count / total
        self._mean, self._count = self._mean + gap * count / total, total

    def state_dict(self) -> dict[str, Any]:
        return {"running": self._running.clone(), "moments": [self._count, self._mean, self._square]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._running.copy_(state["running"])
        self._count, self._mean, self._square = (float(value) for value in state["moments"])
