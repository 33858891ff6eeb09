"""The explicit LQR law: a policy initialised with it flies equally and holds its craft."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from policies.flight.policy import FlightPolicy
from robo_rl.core.errors import ConfigError
from sim.engines.quad.craft import load_craft
from sim.engines.quad.layout import EXTERNAL_SIZE, POS, QUAT, RATE, ROTOR, STATE_SIZE, VEL
from sim.flight.command import motors_hover
from sim.flight.control.linear_law import growth, linear_law, plant
from sim.flight.flight import first_observation
from sim.flight.flights import Flights
from sim.flight.trial import fly, policy_pilot
from sim.flight.vec_env import flight_spec
from sim.tasks.flight.hover import HoverTask
from sim.tasks.flight.observation import FlightSenses

CRAFT, TASK, SENSES = load_craft("cf2x_l2f"), HoverTask(max_steps=60), FlightSenses(noise=False)
HOVER = 2.0 * CRAFT.hover_speed - 1.0
LAW = linear_law(CRAFT, TASK.dt_s, SENSES)


def policy() -> FlightPolicy:
    scale = torch.tensor(TASK.scales[0] + (1.0,) * 32 + (30.0,) * 3)
    made = FlightPolicy(flight_spec(TASK, SENSES), (16,), scale, HOVER, law=True)
    made.set_law(torch.from_numpy(LAW.weight), torch.from_numpy(LAW.bias))
    return made


def law_by_hand(state: Tensor, history: Tensor, integral: Tensor) -> Tensor:
    """clip(hover - K x) from the state itself: tilt 2 w v of the quaternion, rotors by filtering the
    history.
    """
    w, *v = state[QUAT].double()
    rotor = torch.zeros(4, state.shape[1], dtype=torch.float64)
    for action in reversed(history.double().unflatten(0, (8, 4))):  # oldest first
        rotor = rotor + (action - HOVER - rotor) * (1.0 - np.exp(-TASK.dt_s / CRAFT.rise_s))
    tilt = torch.stack([2.0 * w * part for part in v])
    x = torch.cat([state[POS], state[VEL], tilt, state[RATE], rotor, integral]).double()
    return (HOVER - torch.from_numpy(LAW.gain) @ x).clamp(-1.0, 1.0)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**31 - 1), st.floats(0.01, 1.0))
def test_the_policy_is_the_law(seed: int, size: float) -> None:
    """Anywhere in the box, at any attitude, with any remembered actions: equal to a few float32 roundings."""
    rng = torch.Generator().manual_seed(seed)
    state = torch.zeros(STATE_SIZE, 32)
    state[POS] = size * 0.6 * (2.0 * torch.rand(3, 32, generator=rng) - 1.0)
    quat = torch.randn(4, 32, generator=rng) * torch.tensor([1.0, size, size, size]).unsqueeze(1)
    state[QUAT] = quat / quat.norm(dim=0)
    state[VEL], state[RATE] = (
        size * torch.randn(3, 32, generator=rng),
        2.0 * size * torch.randn(3, 32, generator=rng),
    )
    state[ROTOR] = CRAFT.hover_speed
    history = (HOVER + size * torch.randn(32, 32, generator=rng)).clamp(-1.0, 1.0)
    integral = 0.1 * size * (2.0 * torch.rand(3, 32, generator=rng) - 1.0)
    external = torch.zeros(EXTERNAL_SIZE, 32)
    _, obs = first_observation(state, external, None, motors_hover(CRAFT), TASK, SENSES)
    obs = torch.cat([obs[:18], history, integral])
    found = policy().columns(obs)
    expected = law_by_hand(state, history, integral)
    assert (found.double() - expected).abs().max() < 2e-5
    rows = policy().sample({"state": obs.T.unsqueeze(1)}, torch.zeros(32, 1, 4))[:, 0]
    assert (rows.T - found).abs().max() < 1e-6


def test_its_first_flight_is_that_of_the_law() -> None:
    """0.6 s from tumbling starts under disturbance and noise: the same path as a pilot of K x alone."""
    flights = [Flights(CRAFT, TASK, FlightSenses(), 16, seed=5, gradient=False, eager=True) for _ in range(2)]
    weight, bias = torch.from_numpy(LAW.weight).float(), torch.from_numpy(LAW.bias).float().unsqueeze(1)
    ours = fly(flights[0], policy_pilot(policy().columns))
    law = fly(flights[1], lambda now: (weight @ now.obs + bias).clamp(-1.0, 1.0))
    assert torch.allclose(ours.position_m, law.position_m, atol=1e-4, equal_nan=True)
    assert ours.rotor.nan_to_num().std() > 0.05  # and it does something


def test_law_holds_hover_or_reports_that_it_cannot() -> None:
    """The slowest mode of the true closed loop decays within two seconds; slow rotors with a short history
    are refused.
    """
    a, b = plant(CRAFT, TASK.dt_s)
    assert growth(LAW, a, b, SENSES) < 0.995
    with pytest.raises(ConfigError, match="Raise history"):
        linear_law(load_craft("cf21"), 0.01, FlightSenses(history=8))


def test_learning_moves_both_parts() -> None:
    """The perceptron starts at zero, and its last layer and the law both have a gradient."""
    made = policy()
    made.columns(0.01 * torch.ones(53, 4)).sum().backward()
    assert made.law is not None
    for parameter in (made.law.weight, made.weights()[-1][0]):
        assert parameter.grad is not None
        assert parameter.grad.abs().max() > 0.0
