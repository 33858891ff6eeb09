"""Policy head of PPO on denoising: a chunk is a chain of Gaussian transitions, each an action of its own.

DPPO (Ren et al. 2024, section 4) sees denoising as an inner Markov decision process. Its transitions share
the advantage of the decision; the chain itself earns no reward. The head knows only the mean and standard
deviation of each transition, so it serves every process and network.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from robo_rl.core.action_map import ChainMap
from robo_rl.core.errors import ConfigError
from robo_rl.core.shapes import Bool, Float, Int
from robo_rl.rl.denoising.config import DenoisingConfig
from robo_rl.rl.off_policy.losses import Info
from robo_rl.rl.on_policy.head import HeadTerms

_LOG_SQRT_2PI = 0.5 * math.log(2.0 * math.pi)


@runtime_checkable
class Chains(Protocol):
    """Stochastic chains of a policy under its current weights. steps: the S stochastic transitions of K."""

    total: int
    steps: tuple[int, ...]

    def points(
        self, cond: Tensor, noise: Tensor, step_noise: Tensor, chosen: Bool[Tensor, "b K"] | None = None
    ) -> Float[Tensor, "b K1 Tp a"]: ...

    def stats(self, cond: Tensor, x: Tensor, k: Int[Tensor, " b"]) -> tuple[Tensor, Tensor]: ...


class ChainHead:
    """Distribution of a `ChainMap`'s u.

    Terms are the S stochastic transitions, or one: the transition that was drawn, or the entire chain. The
    last number of u is the drawn transition's position among the S. With `progressive` only the last
    `active` of them are stochastic, the others follow the deterministic path (backward progressive training
    of B2-DiffuRL, Hu et al. 2025).
    """

    def __init__(
        self,
        chains: Chains,
        module: nn.Module,
        action_map: ChainMap,
        config: DenoisingConfig,
        clip: float,
        generator: torch.Generator,
    ) -> None:
        if not chains.steps:
            raise ConfigError(
                f"No transition has a standard deviation of method.denoising.min_std={config.min_std} or "
                "more, so nothing can be learned. Lower it, or raise method.denoising.level or "
                "trained_steps."
            )
        self.module, self.map, self.config, self._chains = module, action_map, config, chains
        count, device = len(chains.steps), generator.device
        self._drawn = config.random_step != "none"
        self._set_active(active_steps(count, config.progressive, 0.0))
        self._steps = torch.tensor(chains.steps, device=device)
        self.clip, self._clips = clip, step_clips(count, clip, config.first_clip, config.clip_rate).to(device)
        self._factor = (config.discount ** torch.arange(count - 1, -1, -1.0)).to(device)
        self._of_rollout = self._draw((), generator)  # position of the transition that a rollout explores

    def act(
        self,
        obs: Float[Tensor, "b f"],
        ctx: Float[Tensor, "b n"],
        generator: torch.Generator,
        *,
        explore: bool,
    ) -> Float[Tensor, "b d"]:
        """A chain from the noise `ctx`; without exploration it follows the deterministic path."""
        count, device = len(obs), obs.device
        noise = ctx.view(count, *self.map.shape)
        shape = (count, self._chains.total, *self.map.shape)
        chosen, position = None, torch.zeros(count, dtype=torch.long, device=device)
        if self._first and not self._drawn:
            later = torch.arange(shape[1], device=device) >= self._steps[self._first]
            chosen = later.expand(count, -1)
        if self._drawn:
            each = self.config.random_step == "decision"
            position = self._draw((count,), generator) if each else self._of_rollout.expand(count)
            chosen = torch.arange(shape[1], device=device) == self._steps[position].unsqueeze(1)
        if not explore:
            chosen = torch.zeros(shape[:2], dtype=torch.bool, device=device)
        draws = torch.randn(shape, generator=generator, device=device, dtype=obs.dtype)
        points = self._chains.points(obs, noise, draws, chosen)
        return torch.cat([points.flatten(1), position.to(obs.dtype).unsqueeze(1)], dim=1)

    def evaluate(
        self, x: Float[Tensor, "r f"], u: Float[Tensor, "r d"], term: Int[Tensor, " r"]
    ) -> HeadTerms:
        if self.config.ratio == "transition":
            log_prob, entropy = self._transition(x, u, self._steps[self._position(u, term)])
            return self._terms(log_prob, entropy)
        steps = self._steps[self._first :]
        count = len(steps)
        rows = torch.arange(len(x), device=x.device).repeat_interleave(count)
        log_prob, entropy = self._transition(x[rows], u[rows], steps.repeat(len(x)))
        log_prob = log_prob.view(-1, count)
        return self._terms(log_prob.mean(1) if self.config.reduce == "mean" else log_prob.sum(1), entropy)

    def trust(
        self, u: Float[Tensor, "r d"], term: Int[Tensor, " r"]
    ) -> tuple[Float[Tensor, " r"], Float[Tensor, " r"]]:
        position = self._position(u, term) if self.config.ratio == "transition" else torch.full_like(term, -1)
        return self._clips[position], self._factor[position]

    def next_round(self, share: float, generator: torch.Generator) -> Info:
        self._set_active(active_steps(len(self._steps), self.config.progressive, share))
        self._of_rollout = self._draw((), generator)
        return {}

    def _set_active(self, active: int) -> None:
        count = len(self._chains.steps)
        self._first = count - active  # position of the first stochastic transition among the S
        self.terms = 1 if self._drawn or self.config.ratio == "chain" else active

    def state_dict(self) -> dict[str, Any]:
        return {"of_rollout": self._of_rollout.clone(), "first": self._first}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._of_rollout = state["of_rollout"].to(self._of_rollout.device, copy=True)
        self._set_active(len(self._steps) - int(state.get("first", 0)))  # older checkpoints have none

    def _draw(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        """Positions of transitions, if only one is stochastic; else no random number is used."""
        if not self._drawn:
            return torch.zeros(shape, dtype=torch.long, device=generator.device)
        return torch.randint(
            self._first, len(self._steps), shape, generator=generator, device=generator.device
        )

    def _position(self, u: Tensor, term: Tensor) -> Tensor:
        return u[:, -1].long() if self._drawn else term + self._first

    def _transition(self, x: Tensor, u: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """(log-probability of transition k of each row, mean entropy of an element)."""
        points, rows = self.map.points(u), torch.arange(len(u), device=u.device)
        before, after = points[rows, k], points[rows, k + 1]
        mean, std = self._chains.stats(x, before, k)
        each = -0.5 * ((after - mean) / std).square() - std.log() - _LOG_SQRT_2PI
        log_prob = each.flatten(1)
        reduced = log_prob.mean(1) if self.config.reduce == "mean" else log_prob.sum(1)
        return reduced, std.log().mean() + _LOG_SQRT_2PI + 0.5

    def _terms(self, log_prob: Tensor, entropy: Tensor) -> HeadTerms:
        return HeadTerms(log_prob, -self.config.entropy * entropy, {"actor/entropy": entropy.detach()})


def active_steps(count: int, progressive: float, share: float) -> int:
    """Number of stochastic transitions, of `count`, after a fraction `share` of the training."""
    if progressive <= 0.0:
        return count
    return min(count, 1 + int(count * share / progressive))


def step_clips(count: int, last: float, first: float | None, rate: float) -> Float[Tensor, " S"]:
    """Clip of each of `count` transitions: first + (last - first) (e^{rate s} - 1) / (e^rate - 1), s from 0
    to 1 (DPPO's code).
    """
    if first is None or count == 1:
        return torch.full((count,), last)
    share = torch.linspace(0.0, 1.0, count)
    return first + (last - first) * torch.expm1(rate * share) / math.expm1(rate)
