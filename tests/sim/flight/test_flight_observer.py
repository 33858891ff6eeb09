"""The observer on the vehicle computes the observation of training, in any autopilot's frames."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from policies.flight.observer import FlightObserver, VehicleState
from robo_rl.core.errors import ConfigError, DataError
from robo_rl.core.flight.frames import swap_attitude, swap_body, swap_world
from sim.engines.quad.craft import load_craft
from sim.engines.quad.layout import POS, QUAT, RATE, VEL
from sim.flight.flights import Flights
from sim.tasks.flight.hover import HoverTask
from sim.tasks.flight.observation import FlightSenses
from sim.tasks.flight.tracking import TrackingTask

CRAFT = load_craft("cf2x_l2f")
STILL = VehicleState(np.zeros(3), np.array([1.0, 0.0, 0.0, 0.0]), np.zeros(3), np.zeros(3))


def told(flights: Flights, frame: str) -> VehicleState:
    """True state of drone 0 in the frames of an autopilot."""
    rows = flights.state[:, 0].double().numpy()
    position, quat, velocity, rates = (rows[part] for part in (POS, QUAT, VEL, RATE))
    if frame == "enu_flu":
        return VehicleState(position, quat, velocity, rates)
    return VehicleState(
        swap_world(position), swap_attitude(quat), swap_world(velocity), swap_body(rates), frame
    )


@pytest.mark.parametrize("frame", ["enu_flu", "ned_frd"])
@pytest.mark.parametrize(
    ("history", "integral", "moving"), [(8, True, False), (0, False, False), (2, True, True)]
)
def test_observations_are_those_of_training(frame: str, history: int, integral: bool, moving: bool) -> None:
    """Sixty steps of random commands without sensor noise: every entry of every observation agrees."""
    task = TrackingTask() if moving else HoverTask()
    flights = Flights(
        CRAFT, task, FlightSenses(history, integral, noise=False), 3, 0, gradient=False, eager=True
    )
    observer = FlightObserver(history, integral, 2.0 * CRAFT.hover_speed - 1.0, task.dt_s)
    rng = torch.Generator().manual_seed(0)
    for _ in range(60):
        goal = flights.reference()[:, 0].double().numpy()
        behind = flights.obs[18 + 4 * history + 3 * integral :, 0].numpy()
        seen = observer.observe(told(flights, frame), goal[0:3], goal[3:6], behind)
        np.testing.assert_allclose(seen, flights.obs[:, 0].numpy(), atol=2e-5)
        action = 0.6 * torch.rand(4, 3, generator=rng) - 0.1
        flights.advance(action)
        observer.record_action(action[:, 0].double().numpy())


def test_reset_clears_the_history() -> None:
    """After a reset the history hovers and the integral is zero; the first observation adds nothing to it."""
    observer = FlightObserver(2, True, 0.3)
    away = replace(STILL, position_m=np.array([1.0, 0.0, 0.0]))
    first = observer.observe(away, np.zeros(3))
    observer.record_action(np.zeros(4))
    second = observer.observe(away, np.zeros(3))
    assert second[-3:] == pytest.approx([0.01, 0.0, 0.0])
    for _ in range(50):
        last = observer.observe(away, np.zeros(3))
    assert last[-3] == pytest.approx(0.1)  # kept within its limit
    observer.reset()
    assert np.array_equal(observer.observe(away, np.zeros(3)), first)


@pytest.mark.wrong_types
@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"position_m": np.array([np.nan, 0.0, 0.0])}, DataError, "position_m must be 3 finite numbers"),
        ({"rates_rad_s": np.zeros(4)}, DataError, "rates_rad_s must be 3"),
        ({"quat_wxyz": np.array([0.5, 0.0, 0.0, 0.0])}, DataError, "length 0.500, expected 1"),
        ({"frame": "nwu"}, ConfigError, "frame must be one of enu_flu, ned_frd, found 'nwu'"),
    ],
)
def test_invalid_states_are_refused(changes: dict[str, object], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        FlightObserver(1, False, 0.0).observe(replace(STILL, **changes), np.zeros(3))  # type: ignore[arg-type]
