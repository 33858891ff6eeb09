"""Rewards on courses are positive in flight, so leaving is never better."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from sim.engines.quad.craft import load_craft
from sim.engines.quad.layout import POS, VEL
from sim.flight.setting import DEFAULT, measured_task
from sim.flight.vec_env import QuadVecEnv
from sim.tasks.flight.course import positive_reward

COURSES = ["waypoints", "race", "obstacles"]


@pytest.mark.parametrize("name", COURSES)
def test_no_step_is_worth_less_than_the_end(name: str) -> None:
    """Low costs give alive minus cost, bit for bit; high costs give less and less, never 0."""
    task: Any = measured_task(name, load_craft("cf2x_l2f"), DEFAULT)
    cheap = torch.linspace(-9.0, -1.0, 50)
    assert torch.equal(task.reward(cheap), -cheap)
    dear = task.reward(torch.linspace(-1.0, 60.0, 200))
    assert (dear > 0.0).all()
    assert (dear.diff() < 0.0).all()


def test_the_bend_by_hand() -> None:
    """alive 5: r0 = 1. Costs -3, -1, 0, 1 give 3, 1, 1/e, 1/e^2; at -1 the slope is -1 from both sides."""
    paid = positive_reward(torch.tensor([-3.0, -1.0, 0.0, 1.0]), 5.0)
    torch.testing.assert_close(paid, torch.tensor([3.0, 1.0, 0.3678794, 0.1353353]))
    cost = torch.tensor([-1.0001, -0.9999], requires_grad=True)
    (slope,) = torch.autograd.grad(positive_reward(cost, 5.0).sum(), cost)
    torch.testing.assert_close(slope, torch.tensor([-1.0, -1.0]), atol=1e-3, rtol=0.0)


@pytest.mark.parametrize("name", COURSES)
def test_staying_in_a_corner_pays_more_than_leaving_by_it(name: str) -> None:
    """The worst place: three walls within 5 cm, flying off. Each step there had a negative reward before."""
    env = QuadVecEnv(name, 1)
    task: Any = env.task
    env.reset(iter(range(99)))
    room = task.track.room if name == "race" else task.room
    state = env.snapshot()["state"]
    state[POS, 0] = torch.tensor(room.high_m) - 0.05
    state[VEL, 0] = 0.3
    env.restore(env.snapshot() | {"state": state})
    _, reward, terminated, _, _ = env.step(torch.full((1, 4), 0.3))
    assert not terminated.any()
    assert 0.0 < float(reward) < 1.0
