"""Sampling of a process: the deterministic path, stochastic chains and their log-probabilities.

These functions use a process through its `DenoisingTransitions` only, and a policy through its network and
condition.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from policies.base.process import DenoisingTransitions, Index, Net, Process
from robo_rl.core.errors import ConfigError
from robo_rl.core.shapes import Float

_LOG_SQRT_2PI = 0.5 * math.log(2.0 * math.pi)


@dataclass(frozen=True)
class Explore:
    """Stochastic transitions of a chain and their noise level.

    level: see `policies.base.process`. steps: transitions that may be stochastic, None for all. min_std:
    lower bound of the std (DPPO samples with at least 0.1). skip_below: a transition whose std is below this
    is deterministic and has no log-probability: its density ratio would dominate all others.
    """

    level: float = 1.0
    steps: tuple[int, ...] | None = None
    min_std: float = 0.0
    skip_below: float = 0.02


@dataclass(frozen=True)
class DenoisingChain:
    """Path from noise to action: K transitions, of which S were stochastic."""

    x: Float[Tensor, "b K1 Tp a"]  # K + 1 points; x[:, 0] is the noise, x[:, -1] the action before clipping
    steps: tuple[int, ...]  # the S stochastic transitions, ascending
    log_prob: Float[Tensor, "b S Tp a"]  # per element; the algorithm decides on the reduction
    explore: Explore

    @property
    def total(self) -> int:
        """Number K of transitions."""
        return self.x.shape[1] - 1


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
    """Transitions of `explore` whose std, after `min_std`, is not negligible."""
    stds = transitions.std.clamp(min=explore.min_std).tolist()
    wanted = range(len(stds)) if explore.steps is None else sorted(explore.steps)
    if any(not 0 <= k < len(stds) for k in wanted):
        raise ConfigError(f"Explored steps must lie in [0, {len(stds) - 1}], found {explore.steps}.")
    return tuple(k for k in wanted if stds[k] >= max(explore.skip_below, 1e-12))


def sample_chain(
    process: Process,
    net: Net,
    cond: Float[Tensor, "b c"],
    noise: Float[Tensor, "b Tp a"],
    step_noise: Float[Tensor, "b K Tp a"],
    explore: Explore,
) -> DenoisingChain:
    """Sample a stochastic chain. step_noise[:, k]: standard normal draw of transition k of K."""
    total = step_noise.shape[1]
    still = process.transitions(total, device=noise.device)
    moved = process.transitions(total, explore.level, noise.device)
    steps = stochastic_steps(moved, explore)
    points, log_probs = [noise], []
    for k in range(total):
        x = points[-1]
        out = net(x, moved.time(k, x), cond)
        if k not in steps:
            points.append(still.stats(out, x, k)[0])
            continue
        mean, std = moved.stats(out, x, k)
        std = std.clamp(min=explore.min_std)
        points.append(mean + std * step_noise[:, k])
        log_probs.append(gaussian_log_prob(points[-1], mean, std))
    stacked = torch.stack(log_probs, dim=1) if log_probs else noise.new_zeros(len(noise), 0, *noise.shape[1:])
    return DenoisingChain(torch.stack(points, dim=1), steps, stacked, explore)


def transition_log_prob(
    transitions: DenoisingTransitions,
    net: Net,
    cond: Float[Tensor, "b c"],
    x: Float[Tensor, "b Tp a"],
    x_next: Float[Tensor, "b Tp a"],
    k: Index,
    min_std: float = 0.0,
) -> Float[Tensor, "b Tp a"]:
    """Log-density of each element of one transition; k may differ between samples."""
    mean, std = transitions.stats(net(x, transitions.time(k, x), cond), x, k)
    return gaussian_log_prob(x_next, mean, std.clamp(min=min_std))


def log_prob(
    process: Process, net: Net, cond: Float[Tensor, "b c"], chain: DenoisingChain
) -> Float[Tensor, "b S Tp a"]:
    """`chain.log_prob` under the current weights; equal to the stored one while the weights are unchanged."""
    if not chain.steps:
        return chain.log_prob
    transitions = process.transitions(chain.total, chain.explore.level, chain.x.device)
    floor = chain.explore.min_std
    each = [
        transition_log_prob(transitions, net, cond, chain.x[:, k], chain.x[:, k + 1], k, floor)
        for k in chain.steps
    ]
    return torch.stack(each, dim=1)


def gaussian_log_prob(value: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """log N(value; mean, std^2), elementwise."""
    return -0.5 * ((value - mean) / std).square() - std.log() - _LOG_SQRT_2PI
