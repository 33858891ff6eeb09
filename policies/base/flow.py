"""Flow matching: straight paths from noise to action, integrated by Euler steps.

x_t = t * noise + (1 - t) * action, whose velocity is noise - action (Lipman et al. 2023). Direction and grid
are those of pi0 (Black et al. 2024): t = 1, 1 - 1/K, ..., 1/K, so each network call covers 1/K of the path.

The network outputs the velocity, the action itself, where velocity = (x_t - action) / t, or the
preconditioned velocity F (Karras et al. 2022, "Elucidating the Design Space", section 5, adapted to this
path):

    velocity = skip(t) x_t + out(t) F
    v = t^2 + (1 - t)^2 s^2,   skip = (t - (1 - t) s^2) / v,   out = s / sqrt(v)

skip x_t is the best linear estimate of the velocity for actions of standard deviation s; out gives F unit
variance at every t. All three have the same paths but learn differently. An MLP with the action as output
need not pass the noise through its layers, so it learns faster. From few demonstrations it also learns to
ignore the noise: on peg-insert with 20 demonstrations, N(0, I) and zero noise then succeed equally often, and
steering has no effect. Velocity depends on the noise and learns slowly. Preconditioned velocity need not pass
the noise through either, and depends on it: on Push-T its coverage after 12,000 updates exceeds that of the
action after 40,000.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from policies.base.process import (
    DenoisingTransitions,
    Net,
    ProcessConfig,
    check_steps,
    config_json,
    per_sample,
)
from robo_rl.core.errors import ConfigError, UnknownNameError
from robo_rl.core.settings import setting
from robo_rl.core.shapes import Float

PREDICTIONS = ("velocity", "sample", "preconditioned")
ACTION_STD = 0.5  # s above; actions are in [-1, 1]


@dataclass
class FlowConfig(ProcessConfig):
    """Settings of a flow. time_power=1.5 is pi0's Beta(1.5, 1)."""

    name: str = "flow"
    steps: int = setting(10, "transitions when sampling (K)")
    prediction: str = setting("velocity", "network output: velocity, sample (the action) or preconditioned")
    time_power: float = setting(1.0, "p of the density p t^(p-1) of training times; 1 is uniform")


class Flow(nn.Module):
    """Flow process of this module; it has no tables and no weights."""

    Config = FlowConfig

    def __init__(self, config: FlowConfig) -> None:
        super().__init__()
        if config.prediction not in PREDICTIONS:
            raise UnknownNameError("prediction of a flow process", config.prediction, PREDICTIONS)
        if config.time_power <= 0.0:
            raise ConfigError(f"time_power must be positive, found {config.time_power}.")
        self.steps = check_steps(config.steps)
        self._config = config

    @classmethod
    def build(cls, config: FlowConfig) -> Flow:
        return cls(config)

    def config(self) -> dict[str, Any]:
        return config_json(self._config)

    def transitions(
        self, steps: int, level: float = 0.0, device: torch.device | None = None
    ) -> DenoisingTransitions:
        """Euler steps of the ODE, x - v / K, for level 0, else Euler-Maruyama steps of the SDE with the same
        marginals.

        Flow-SDE (Liu et al. 2025, "Flow-GRPO", eq. 9): sigma_t = level * sqrt(t / (1 - t)), with t = 1 in the
        root replaced by the next grid point, because it would be infinite; piRL's code replaces it in the
        denominator alone, so that its first sigma is level * sqrt(K). The drift gains
        sigma^2 / 2 times the score -(x + (1 - t) v) / t, which is minus the noise estimate over t.
        """
        dt = 1.0 / check_steps(steps)
        t = 1.0 - torch.arange(steps, device=device) / steps
        inside = t.clamp(max=max(1.0 - dt, 0.5))
        sigma = level * (inside / (1.0 - inside)).sqrt()
        pull = sigma.square() * dt / (2.0 * t)
        along_v = -dt - pull * (1.0 - t)
        skip, out = velocity_of(self._config.prediction, t)
        return DenoisingTransitions(t, 1.0 - pull + along_v * skip, along_v * out, sigma * dt**0.5)

    def bc_loss(
        self,
        net: Net,
        cond: Float[Tensor, "b c"],
        chunk: Float[Tensor, "b Tp a"],
        noise: Float[Tensor, "b Tp a"],
        u: Float[Tensor, " b"],
    ) -> Float[Tensor, " b"]:
        """Mean over the chunk of |net(x_t) - target|^2, at t = (1 - u)^(1 / time_power) in (0, 1]."""
        t = 1.0 - u if self._config.time_power == 1.0 else (1.0 - u) ** (1.0 / self._config.time_power)
        x = torch.lerp(chunk, noise, per_sample(t))
        if self._config.prediction == "sample":
            target = chunk
        else:
            skip, out = (per_sample(row) for row in velocity_of(self._config.prediction, t))
            target = (noise - chunk - skip * x) / out
        return (net(x, t, cond) - target).square().mean(dim=(1, 2))


def velocity_of(prediction: str, t: Float[Tensor, "*b"]) -> tuple[Float[Tensor, "*b"], Float[Tensor, "*b"]]:
    """(skip, out) at times in (0, 1]: velocity = skip * x_t + out * network output."""
    if prediction == "velocity":
        return torch.zeros_like(t), torch.ones_like(t)
    if prediction == "sample":
        return 1.0 / t, -1.0 / t
    rest, variance = 1.0 - t, ACTION_STD**2
    total = t.square() + rest.square() * variance
    return (t - rest * variance) / total, ACTION_STD / total.sqrt()
