"""Observation of a flight: position, attitude, velocity, rates, last actions, integral of the position error."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from sim.engines.quad.layout import POS, QUAT, RATE, VEL, rotation_matrix

SENSED_SIZE = 18  # position 3, rotation matrix 9, velocity 3, rates 3
OBS_NOISE = (1e-3, 1e-3, 2e-3, 2e-3)  # standard deviations of position, rotation matrix, velocity and rates


@dataclass(frozen=True, slots=True)
class FlightSenses:
    """Observations of the policy besides position, rotation matrix, velocity and rates."""

    history: int = 8  # last actions
    integral: bool = True  # integral of the position error: what removes the error under a constant force
    integral_limit: float = 0.1  # m s
    noise: bool = True  # sensors are noisy

    @property
    def memory_size(self) -> int:
        return 4 * self.history + 3 * self.integral

    @property
    def obs_size(self) -> int:
        return SENSED_SIZE + self.memory_size


def observe(state: Tensor, noise: Tensor | None) -> Tensor:
    """(18, n): position [m], rotation matrix (rows), velocity [m/s, world], rates [rad/s, body], with sensor
    noise.
    """
    seen = torch.cat([state[POS], rotation_matrix(state[QUAT]), state[VEL], state[RATE]])
    if noise is None:
        return seen
    std = noise.new_tensor([s for s, rows in zip(OBS_NOISE, (3, 9, 3, 3), strict=True) for _ in range(rows)])
    return seen + std[:, None] * noise


def remember(memory: Tensor, action: Tensor, position_m: Tensor, senses: FlightSenses, dt_s: float) -> Tensor:
    """The newest action in front, the oldest forgotten; the integral of the position error, kept within its
    limit.
    """
    actions = torch.cat([action, memory[: 4 * senses.history - 4]]) if senses.history else memory[:0]
    if not senses.integral:
        return actions
    limit = senses.integral_limit
    return torch.cat([actions, (memory[-3:] + dt_s * position_m).clamp(-limit, limit)])
