"""Initial conditions of flights, drawn on any device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from sim.engines.quad.craft import Craft, Four
from sim.engines.quad.layout import Spread, parameters
from sim.flight.flight import first_observation, noise_size
from sim.flight.realism import Realism
from sim.tasks.flight.observation import FlightSenses
from sim.tasks.flight.protocol import FlightTask


class InitialConditions(NamedTuple):
    """Initial conditions of flights; the last axis counts drones."""

    state: Tensor
    memory: Tensor
    params: Tensor  # one column where all aircraft are equal
    external: Tensor
    obs: Tensor


@dataclass(frozen=True)
class StartDistribution:
    """Distribution of initial conditions. hover: the action that hovers. small_s: step of the integrator."""

    craft: Craft
    task: FlightTask
    senses: FlightSenses
    realism: Realism
    spread: Spread | None  # variation between aircraft
    hover: Four
    small_s: float

    @property
    def needs_noise(self) -> bool:
        """True where a flight needs random numbers at every step."""
        return self.senses.noise or self.realism.noise_size > 0

    def draw(self, num: int, generator: torch.Generator) -> InitialConditions:
        """Starts with their observations, on the generator's device."""
        device = generator.device
        unit = torch.rand(self.task.start_numbers, num, generator=generator, device=device)
        state, external = self.task.start(self.craft, unit.clamp(1e-7, 1.0 - 1e-7))
        if self.spread is None:
            params = parameters(self.craft, self.small_s).to(device)
        else:
            spread = torch.rand(9, num, generator=generator, device=device) * 2.0 - 1.0
            params = parameters(self.craft, self.small_s, num, self.spread, spread)
        size = noise_size(self.realism)
        noise = torch.randn(size, num, generator=generator, device=device) if self.needs_noise else None
        memory, obs = first_observation(
            state, external, noise, self.hover, self.task, self.senses, self.realism
        )
        return InitialConditions(state, memory, params, external, obs)
