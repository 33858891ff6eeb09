"""Hands a planned path to a pilot step by step, as on a robot."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from sim.engines.quad.layout import EXTERNAL_SIZE
from sim.flight.flights import Flights
from sim.flight.trial import Pilot
from sim.tasks.flight.follow import PATH_SIZE


def hand_over(flights: Flights, row: Float[Tensor, "18 n"]) -> None:
    """The first transition of the path, to flights that have begun without one and see it as if it lay at the
    origin.
    """
    flights.external = torch.cat([flights.external[:EXTERNAL_SIZE], row])
    obs = flights.obs.clone()
    obs[0:3], obs[12:15], obs[6 - PATH_SIZE :] = obs[0:3] - row[0:3], obs[12:15] - row[3:6], row[6:]
    flights.obs = obs


def following(pilot: Pilot, rows: Float[Tensor, "t 18 n"]) -> Pilot:
    """The pilot in fresh flights, with the path moved on by one step after each of its decisions."""
    step = 0

    def act(flights: Flights) -> Tensor:
        nonlocal step
        if step == 0:
            hand_over(flights, rows[0])
        action = pilot(flights)
        step += 1
        flights.external = torch.cat([flights.external[:EXTERNAL_SIZE], rows[step]])
        return action

    return act
