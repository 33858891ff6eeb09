"""Observation of a flight: position, attitude, velocity, rates, last actions, integral of position error."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from sim.engines.quad.layout import POS, QUAT, RATE, VEL, rotation_matrix

SENSED_SIZE = 18  # position 3, rotation matrix 9, velocity 3, rates 3
OBS_NOISE = (1e-3, 1e-3, 2e-3, 2e-3)  # standard deviations of position, rotation matrix, velocity and rates


@dataclass(frozen=True, slots=True)
class FlightSenses:
    """Observed parts besides position, rotation matrix, velocity and rates."""

    history: int = 8  # number of last actions
    integral: bool = True  # integral of the position error, which removes the error under a constant force
    integral_limit: float = 0.1  # largest value of the integral per axis, m s
    noise: bool = True  # noise of the sensors

    @property
    def memory_size(self) -> int:
        """Number of observed numbers that depend on earlier steps: last actions and integral."""
        return 4 * self.history + 3 * self.integral

    @property
    def obs_size(self) -> int:
        """Width of the observation of a task without additional parts."""
        return SENSED_SIZE + self.memory_size


def observe(state: Tensor, noise: Tensor | None) -> Tensor:
    """Measured quantities (18, n), with noise where standard normal numbers (18, n) are given.

    Position [m, world], rotation matrix (body -> world, row by row), velocity [m/s, world], rates [rad/s,
    body].
    """
    seen = torch.cat([state[POS], rotation_matrix(state[QUAT]), state[VEL], state[RATE]])
    if noise is None:
        return seen
    sizes = (3, 9, 3, 3)
    std = torch.cat([noise.new_full((size, 1), s) for s, size in zip(OBS_NOISE, sizes, strict=True)])
    return seen + std * noise


def remember(memory: Tensor, action: Tensor, position_m: Tensor, senses: FlightSenses, dt_s: float) -> Tensor:
    """The policy's memory after a step: last actions, newest first, and the limited integral [m s]."""
    actions = torch.cat([action, memory[: 4 * senses.history - 4]]) if senses.history else memory[:0]
    if not senses.integral:
        return actions
    limit = senses.integral_limit
    return torch.cat([actions, (memory[-3:] + dt_s * position_m).clamp(-limit, limit)])
