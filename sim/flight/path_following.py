"""Pilot of a planned path, which arrives step by step as on a robot."""

from __future__ import annotations

import torch
from torch import Tensor

from robo_rl.core.shapes import Float
from sim.engines.quad.layout import EXTERNAL_SIZE
from sim.flight.flights import Flights
from sim.flight.trial import Pilot
from sim.tasks.flight.follow import PATH_SIZE


def set_first_values(flights: Flights, values: Float[Tensor, "18 n"]) -> None:
    """Give fresh flights the first values of the path, and correct observations made without a path."""
    flights.external = torch.cat([flights.external[:EXTERNAL_SIZE], values])
    obs = flights.obs.clone()
    obs[0:3], obs[12:15], obs[6 - PATH_SIZE :] = obs[0:3] - values[0:3], obs[12:15] - values[3:6], values[6:]
    flights.obs = obs


def following(pilot: Pilot, values: Float[Tensor, "t 18 n"]) -> Pilot:
    """Wrap a pilot of fresh flights so that the path advances by one step after each of its actions."""
    step = 0

    def act(flights: Flights) -> Tensor:
        nonlocal step
        if step == 0:
            set_first_values(flights, values[0])
        action = pilot(flights)
        step += 1
        flights.external = torch.cat([flights.external[:EXTERNAL_SIZE], values[step]])
        return action

    return act
