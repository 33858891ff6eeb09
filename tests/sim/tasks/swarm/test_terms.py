"""Training terms: the desired velocity by hand and its bounds, the danger cost, the observation."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from sim.engines.quad.craft import load_craft
from sim.engines.quad.layout import POS, VEL, start
from sim.tasks.swarm.guidance import Guidance, wanted_velocity
from sim.tasks.swarm.terms import RANGE_M, Weights, bounded_offset, see_cylinders, see_drones, terms
from sim.tasks.swarm.world import ABSENT_M, SwarmWorld

HOW, WORLD = Guidance(), SwarmWorld(arm_m=0.04)
CRAFT = load_craft("cf2x_l2f")


def vec(*parts: float) -> tuple[Tensor, ...]:
    return tuple(torch.tensor([part], dtype=torch.float64) for part in parts)


def wanted(
    to_goal: tuple[float, ...], drones: list[tuple[float, ...]], cylinders: list[tuple[float, ...]]
) -> Tensor:
    found = wanted_velocity(
        vec(*to_goal), vec(0.0, 0.0, 0.0), [vec(*at) for at in drones], [vec(*at) for at in cylinders], HOW
    )  # type: ignore[arg-type]
    return torch.cat(found)


def test_with_nothing_near_it_heads_for_the_goal() -> None:
    """1 m away: 1.5 tanh(1.2 / 1.5) = 0.996 m/s; far away 1.5 m/s; at the goal nothing."""
    assert wanted((1.0, 0.0, 0.0), [], []).tolist() == pytest.approx(
        [1.5 * math.tanh(0.8), 0.0, 0.0], abs=1e-6
    )
    assert wanted((0.0, 30.0, 40.0), [], []).tolist() == pytest.approx([0.0, 0.9, 1.2], abs=1e-6)
    assert wanted((0.0, 0.0, 0.0), [], []).abs().max() < 1e-6


@given(st.floats(0.3, 8.0), st.floats(0.0, 6.3), st.floats(-2.0, 2.0), st.floats(0.2, 1.5))
@settings(max_examples=100, deadline=None)
def test_it_never_approaches_faster_than_allowed(goal_m: float, angle: float, up: float, gap: float) -> None:
    """Whatever the goal: towards a cylinder at most a (distance - keep), and away from it when nearer than
    keep.
    """
    goal = (goal_m * math.cos(angle), goal_m * math.sin(angle), up)
    found = wanted(goal, [], [(gap, 0.0)])
    assert found[0] <= HOW.cylinder_hz * (gap - HOW.keep_cylinder_m) + 1e-4


def test_head_on_it_turns_to_the_right() -> None:
    """A cylinder and a drone straight ahead along +x: right is -y. The one that comes the other way turns to
    +y.
    """
    assert wanted((5.0, 0.0, 0.0), [], [(0.45, 0.0)])[1] < -0.1
    assert wanted((5.0, 0.0, 0.0), [(0.35, 0.0, 0.0)], [])[1] < -0.1
    assert wanted((-5.0, 0.0, 0.0), [(-0.35, 0.0, 0.0)], [])[1] > 0.1


def danger_at(gap: float, speed: float) -> Tensor:
    state = start(1)
    state[POS], state[VEL, 0] = torch.tensor([[0.0], [0.0], [2.0]]), torch.tensor([speed, 0.0, 0.0])
    state.requires_grad_()
    drones = torch.full((6, 1, 1), ABSENT_M)
    drones[3:] = 0.0
    cylinders = torch.tensor([gap + WORLD.touch_cylinder_m, 0.0]).view(2, 1, 1)
    found = terms(
        state, torch.zeros(4, 1), drones, cylinders, torch.zeros(3, 1), torch.ones(1), 0.0, WORLD, Weights()
    )  # fmt: skip
    found["danger"].sum().backward()
    assert state.grad is not None
    return torch.stack([found["danger"].detach()[0], state.grad[0, 0], state.grad[7, 0]])


def test_danger_rises_with_nearness_and_with_approach() -> None:
    """0 far away; at rest near: 2 (1 - 0.06 / 0.12)^2 = 0.5; approaching costs, leaving does not."""
    assert danger_at(0.41, 1.0)[0] == 0.0
    near = danger_at(0.06, 0.0)
    assert near[0].item() == pytest.approx(0.5, rel=1e-3)
    assert near[1] > 0.0  # stepping forward is punished
    towards, away = danger_at(0.2, 1.0), danger_at(0.2, -1.0)
    assert towards[0].item() == pytest.approx(0.5, rel=1e-3)
    assert towards[2] > 0.0
    assert away[0] == 0.0


def test_observation_of_near_and_far_objects() -> None:
    """Zeros beyond 3 m; 0.1 m away a bearing of 2 * 0.3 / 0.4, and nearness 1 - 0.1 / 3; surfaces count."""
    position, velocity = torch.zeros(3, 1), torch.tensor([[1.0], [0.0], [0.0]])
    drones = torch.tensor([[0.1, RANGE_M + 0.1], [0.0, 0.0], [0.0, 0.0], [0.0, 9.0], [2.0, 9.0], [0.0, 9.0]])
    seen = see_drones(drones.unsqueeze(2), position, velocity).view(7, 2)
    assert seen[:, 0].tolist() == pytest.approx(
        [1.5, 0.0, 0.0, -1.0, 2.0, 0.0, 1.0 - 0.1 / RANGE_M], rel=1e-4
    )
    assert seen[:, 1].eq(0.0).all()
    axes = torch.tensor([[0.5, ABSENT_M], [0.0, ABSENT_M]]).unsqueeze(2)
    seen = see_cylinders(axes, position, WORLD).view(3, 2)
    assert seen[:, 0].tolist() == pytest.approx([1.2, 0.0, 1.0 - 0.2 / RANGE_M], rel=1e-4)
    assert seen[:, 1].eq(0.0).all()
    assert bounded_offset(torch.tensor([[300.0], [400.0], [0.0]]), 1.5)[:, 0].tolist() == pytest.approx(
        [0.9, 1.2, 0.0], rel=1e-3
    )
