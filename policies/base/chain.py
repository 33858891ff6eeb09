"""Sampling of a process: the deterministic path, stochastic chains and the statistics of their transitions.

These functions use a process through its `DenoisingTransitions` only, and a policy through its network and
condition.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from policies.base.process import DenoisingTransitions, Index, Net, Process, per_sample
from robo_rl.core.errors import ConfigError
from robo_rl.core.shapes import Bool, Float

_LOG_SQRT_2PI = 0.5 * math.log(2.0 * math.pi)
# (x (b, Tp, a), t (b,), cond (b, c)) -> std (b, Tp, a) of the transition that starts at x
NoiseStd = Callable[[Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Explore:
    """Stochastic transitions of a chain and their noise.

    level: see `policies.base.process`. steps: transitions that may be stochastic, None for all. min_std: a
    transition whose std is below this floor follows the deterministic path and has no log-probability: its
    density ratio would dominate all others. noise: learned std, in place of the process's; the means are then
    those of the deterministic path.
    """

    level: float = 1.0
    steps: tuple[int, ...] | None = None
    min_std: float = 0.02
    noise: NoiseStd | None = None


@dataclass(frozen=True)
class DenoisingChain:
    """Path from noise to action: K transitions, of which S may be stochastic."""

    x: Float[Tensor, "b K1 Tp a"]  # K + 1 points; x[:, 0] is the noise, x[:, -1] the action before clipping
    steps: tuple[int, ...]  # the S stochastic transitions, ascending
    log_prob: Float[Tensor, "b S Tp a"]  # per element; the algorithm decides on the reduction
    explore: Explore

    @property
    def total(self) -> int:
        """Number K of transitions."""
        return self.x.shape[1] - 1


class ChainSampler:
    """Stochastic chains of one process and network, with tables that are made once.

    steps: the transitions that are stochastic and have a log-probability, ascending.
    """

    def __init__(
        self,
        process: Process,
        net: Net,
        total: int,
        explore: Explore,
        device: torch.device | None = None,
    ) -> None:
        self.net, self.total, self.explore = net, total, explore
        self._still = process.transitions(total, device=device)
        level = 0.0 if explore.noise is not None else explore.level
        self._moved = process.transitions(total, level, device)
        self.steps = stochastic_steps(self._moved, explore)

    def sample(
        self,
        cond: Float[Tensor, "b c"],
        noise: Float[Tensor, "b Tp a"],
        step_noise: Float[Tensor, "b K Tp a"],
        chosen: Bool[Tensor, "b K"] | None = None,
    ) -> DenoisingChain:
        """A chain. step_noise[:, k]: standard normal draw of transition k.

        chosen: rows in which a transition of `steps` is stochastic, None for all; elsewhere it follows the
        deterministic path, and its log-probability is 0.
        """
        points, moments = self._walk(cond, noise, step_noise, chosen)
        log_probs = []
        for k, (mean, std) in moments.items():
            log_prob = gaussian_log_prob(points[k + 1], mean, std)
            if chosen is not None:
                log_prob = torch.where(per_sample(chosen[:, k]), log_prob, 0.0)
            log_probs.append(log_prob)
        empty = noise.new_zeros(len(noise), 0, *noise.shape[1:])
        stacked = torch.stack(log_probs, dim=1) if log_probs else empty
        return DenoisingChain(torch.stack(points, dim=1), self.steps, stacked, self.explore)

    def points(
        self,
        cond: Float[Tensor, "b c"],
        noise: Float[Tensor, "b Tp a"],
        step_noise: Float[Tensor, "b K Tp a"],
        chosen: Bool[Tensor, "b K"] | None = None,
    ) -> Float[Tensor, "b K1 Tp a"]:
        """The points of `sample`, without log-probabilities."""
        return torch.stack(self._walk(cond, noise, step_noise, chosen)[0], dim=1)

    def _walk(
        self, cond: Tensor, noise: Tensor, step_noise: Tensor, chosen: Tensor | None
    ) -> tuple[list[Tensor], dict[int, tuple[Tensor, Tensor]]]:
        """The K + 1 points of a chain, and mean and std of its stochastic transitions."""
        points, moments = [noise], {}
        for k in range(self.total):
            x = points[-1]
            out = self.net(x, self._still.time(k, x), cond)
            if k not in self.steps:
                points.append(self._still.stats(out, x, k)[0])
                continue
            moments[k] = mean, std = self._spread(out, cond, x, k)
            following = mean + std * step_noise[:, k]
            if chosen is not None:
                still = self._still.stats(out, x, k)[0]
                following = torch.where(per_sample(chosen[:, k]), following, still)
            points.append(following)
        return points, moments

    def stats(
        self, cond: Float[Tensor, "b c"], x: Float[Tensor, "b Tp a"], k: Index
    ) -> tuple[Float[Tensor, "b Tp a"], Tensor]:
        """Mean and std of x_{k+1} under the current weights; k may differ between samples."""
        return self._spread(self.net(x, self._moved.time(k, x), cond), cond, x, k)

    def _spread(self, out: Tensor, cond: Tensor, x: Tensor, k: Index) -> tuple[Tensor, Tensor]:
        mean, std = self._moved.stats(out, x, k)
        if self.explore.noise is None:
            return mean, std
        return mean, self.explore.noise(x, self._moved.time(k, x), cond)


def deterministic_sample(
    process: Process, net: Net, cond: Float[Tensor, "b c"], noise: Float[Tensor, "b Tp a"], steps: int
) -> Float[Tensor, "b Tp a"]:
    """Endpoint of the deterministic path, clipped to [-1, 1]: a pure function of (cond, noise)."""
    return deterministic_path(process, net, cond, noise, steps)[-1].clamp(-1.0, 1.0)


def deterministic_path(
    process: Process, net: Net, cond: Float[Tensor, "b c"], noise: Float[Tensor, "b Tp a"], steps: int
) -> list[Float[Tensor, "b Tp a"]]:
    """The K + 1 points of the deterministic path, from the noise to the action before clipping."""
    transitions = process.transitions(steps, device=noise.device)
    points = [noise]
    for k in range(steps):
        x = points[-1]
        points.append(transitions.stats(net(x, transitions.time(k, x), cond), x, k)[0])
    return points


def stochastic_steps(transitions: DenoisingTransitions, explore: Explore) -> tuple[int, ...]:
    """Transitions of `explore` whose std is learned, or not below `min_std`."""
    stds = transitions.std.tolist()
    wanted = range(len(stds)) if explore.steps is None else sorted(explore.steps)
    if any(not 0 <= k < len(stds) for k in wanted):
        raise ConfigError(f"Explored steps must lie in [0, {len(stds) - 1}], found {explore.steps}.")
    if explore.noise is not None:
        return tuple(wanted)
    return tuple(k for k in wanted if stds[k] >= max(explore.min_std, 1e-12))


def sample_chain(
    process: Process,
    net: Net,
    cond: Float[Tensor, "b c"],
    noise: Float[Tensor, "b Tp a"],
    step_noise: Float[Tensor, "b K Tp a"],
    explore: Explore,
) -> DenoisingChain:
    """Sample a stochastic chain. step_noise[:, k]: standard normal draw of transition k of K."""
    sampler = ChainSampler(process, net, step_noise.shape[1], explore, noise.device)
    return sampler.sample(cond, noise, step_noise)


def log_prob(
    process: Process, net: Net, cond: Float[Tensor, "b c"], chain: DenoisingChain
) -> Float[Tensor, "b S Tp a"]:
    """`chain.log_prob` under the current weights; equal to the stored one while the weights are unchanged."""
    if not chain.steps:
        return chain.log_prob
    sampler = ChainSampler(process, net, chain.total, chain.explore, chain.x.device)
    each = [gaussian_log_prob(chain.x[:, k + 1], *sampler.stats(cond, chain.x[:, k], k)) for k in chain.steps]
    return torch.stack(each, dim=1)


def gaussian_log_prob(value: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """log N(value; mean, std^2), elementwise."""
    return -0.5 * ((value - mean) / std).square() - std.log() - _LOG_SQRT_2PI
