"""Following a planned path: its observation, from the first decision on."""

from __future__ import annotations

import torch
from torch import Tensor

from sim.engines.quad.craft import load_craft
from sim.engines.quad.layout import EXTERNAL_SIZE, POS, VEL
from sim.flight.flights import Flights
from sim.flight.path_following import following
from sim.tasks.flight.follow import PATH_SIZE, FollowTask, path_values
from sim.tasks.flight.observation import FlightSenses
from sim.tasks.flight.tracking import PREVIEW_S
from sim.tasks.stl.plan import Plans


def test_the_path_is_seen_at_the_first_decision_as_at_every_other() -> None:
    """Relative position and velocity, acceleration, and future positions of the current moment, also at step
    0.
    """
    generator = torch.Generator().manual_seed(0)
    plans = Plans(0.3 * torch.randn(9, 3, 4, generator=generator), torch.zeros(4), 3.0)
    flights = Flights(
        load_craft("cf2x_l2f"), FollowTask(), FlightSenses(noise=False), 4, 0, gradient=False, eager=True
    )  # fmt: skip
    seen: list[Tensor] = []

    def pilot(flights: Flights) -> Tensor:
        now = flights.external[EXTERNAL_SIZE:]
        seen.append(flights.obs.clone())
        torch.testing.assert_close(flights.obs[0:3], flights.state[POS] - now[0:3])
        torch.testing.assert_close(flights.obs[12:15], flights.state[VEL] - now[3:6])
        return torch.zeros(4, 4)

    act = following(pilot, path_values(plans, 5, 0.01))
    for step in range(5):
        flights.advance(act(flights))
        at = torch.tensor([0.01 * step])
        position, _, acceleration = plans.at(at)
        later = [plans.at(at + later_s)[0] - position for later_s in PREVIEW_S]
        expected = torch.cat([acceleration, *later], dim=1)[0]
        torch.testing.assert_close(seen[step][6 - PATH_SIZE :], expected, atol=1e-5, rtol=1e-5)
        assert seen[step][6 - PATH_SIZE :].abs().max() > 0.01
