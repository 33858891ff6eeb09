"""Rooms and scenarios: starts and goals are free, and the number of cylinders is as given."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from robo_rl.core.errors import ConfigError, UnknownNameError
from sim.engines.quad.craft import load_craft
from sim.tasks.swarm.scenarios import EVADER_M_S, SCENARIOS, check_room, check_scenarios, draw, goal_at
from sim.tasks.swarm.world import ABSENT_M, SwarmWorld, arm_m, check_world, nearest


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def axis_distance(points: Tensor, cylinders: Tensor) -> Tensor:
    """(3, w, d) and (2, w, m) -> (w, d) to the nearest axis."""
    offset = points[0:2].unsqueeze(3) - cylinders.unsqueeze(2)
    return offset.norm(dim=0).amin(2)


@given(st.integers(1, 32), st.floats(0.0, 1.0), st.integers(0, 10_000))
@settings(max_examples=25, deadline=None)
def test_starts_and_goals_are_free_at_every_density(drones: int, density: float, seed: int) -> None:
    """No start and no goal, now or later, is nearer than 0.2 m to a cylinder or to a wall; starts are
    apart.
    """
    world = SwarmWorld(drones=drones, density=density)
    setup = draw(world, SCENARIOS, 10, rng(seed))
    assert (setup.cylinders[0] < ABSENT_M / 2).sum(1).eq(round(64 * density)).all()
    clear = world.cylinder_m + 0.199
    assert axis_distance(setup.start_m, setup.cylinders).min() > clear
    for time_s in (0.0, 3.3, 11.7):
        position, _ = goal_at(setup.goal.flatten(1), torch.full((10 * drones,), time_s))
        assert axis_distance(position.view(3, 10, drones), setup.cylinders).min() > clear
        assert not world.outside(position, -0.2).any()
    near = nearest(torch.cat([setup.start_m.flatten(1)] * 2), setup.cylinders, drones, 1, 1)
    assert near.drone_gap_m.min() > 0.3


def test_goals_of_each_scenario() -> None:
    """Swap: my goal is my partner's start. same_goal: one point. pursuit: it moves with 0.5 m/s. random:
    nobody's.
    """
    world = SwarmWorld(drones=6, density=0.5)
    setup = draw(world, SCENARIOS, 5, rng())
    assert setup.scenario.tolist() == [0, 1, 2, 3, 4]
    now, speed = goal_at(setup.goal.flatten(1), torch.zeros(30))
    goal, speed = now.view(3, 5, 6), speed.view(3, 5, 6).norm(dim=0)
    partner = torch.tensor([1, 0, 3, 2, 5, 4])
    assert goal[:, 1].equal(setup.start_m[:, 1, partner])
    assert goal[:, 2].eq(goal[:, 2, :1]).all()
    assert goal[0:2, 0].T.unique(dim=0).shape[0] == 6
    assert speed[:4].eq(0.0).all()
    assert speed[4].eq(EVADER_M_S).all()
    circle = setup.start_m[:, 3] - setup.start_m[:, 3].mean(1, keepdim=True)
    assert circle.norm(dim=0).std() < 1e-5


def test_the_velocity_of_a_moving_goal_is_its_derivative() -> None:
    """Away from corners, where it jumps: difference quotients of 1 ms."""
    setup = draw(SwarmWorld(drones=1), ("pursuit",), 200, rng(3))
    goal, time = setup.goal.flatten(1).double(), torch.full((200,), 2.0).double()
    before, after = (goal_at(goal, time + shift)[0] for shift in (-5e-4, 5e-4))
    slope, said = (after - before) / 1e-3, goal_at(goal, time)[1]
    smooth = (slope - said).norm(dim=0) < 1e-6
    assert smooth.float().mean() > 0.97


def test_the_nearest_by_hand() -> None:
    """Four drones on a line in one world, one alone at the same place in another: worlds do not interact."""
    position = torch.tensor([[0.0, 1.0, 3.0, 7.0, 0.1, 20.0, 30.0, 40.0], [0.0] * 8, [1.0] * 8])
    motion = torch.cat([position, torch.arange(24.0).view(3, 8)])
    cylinders = torch.tensor([[[0.0, 2.0], [ABSENT_M, ABSENT_M]], [[1.0, 0.0], [ABSENT_M, ABSENT_M]]])
    near = nearest(motion, cylinders, 4, 5, 3)
    assert near.drone_gap_m.tolist() == pytest.approx([1.0, 1.0, 2.0, 4.0, 19.9, 10.0, 10.0, 10.0])
    assert near.drones[0, :3, 1].tolist() == [0.0, 3.0, 7.0]
    assert near.drones[3:, 0, 1].equal(motion[3:, 0])
    assert near.drones[0, 3:].eq(ABSENT_M).all()
    assert near.cylinder_gap_m[:2].tolist() == [1.0, 1.0]
    assert near.cylinders[:, 0, 1].tolist() == [2.0, 0.0]
    assert near.cylinders[0, 2].eq(ABSENT_M).all()


def test_touching_walls() -> None:
    """An arm of 4 cm from the wall is a touch, floor and ceiling included; a margin moves the border out."""
    world = SwarmWorld()
    position = torch.tensor(
        [[4.95, 4.97, 0.0, 0.0, 0.0], [0.0, 0.0, -4.97, 0.0, 0.0], [1.0, 1.0, 1.0, 0.03, 9.97]]
    )
    assert world.outside(position).tolist() == [False, True, True, True, True]
    assert not world.outside(position, 0.1).any()


def test_worlds_that_cannot_be_are_refused() -> None:
    """The sentence says what was found and what would do."""
    check_world(SwarmWorld(drones=49, density=0.8))
    with pytest.raises(ConfigError, match="49 free cells"):
        check_world(SwarmWorld(drones=50, density=0.8))
    with pytest.raises(ConfigError, match=r"0 \.\.\. 1"):
        check_world(SwarmWorld(density=1.2))
    with pytest.raises(ConfigError, match="are out of range"):
        check_world(SwarmWorld(high_m=11.0))
    check_room(SwarmWorld(drones=56), SCENARIOS)
    assert not SwarmWorld().outside(draw(SwarmWorld(drones=56), ("formation",), 1, rng()).start_m[:, 0]).any()
    with pytest.raises(ConfigError, match="at most 56 drones"):
        check_room(SwarmWorld(drones=57), SCENARIOS)
    check_room(SwarmWorld(drones=57), ("random", "swap"))
    with pytest.raises(UnknownNameError, match="swap"):
        check_scenarios(["swop"])
    with pytest.raises(ConfigError, match=r"scenarios=\[\] .* at least one of: random, swap"):
        check_scenarios([])


def test_the_arm_of_a_crazyflie() -> None:
    """sqrt(2) 28 mm."""
    assert arm_m(load_craft("cf2x_l2f")) == pytest.approx(0.0396, abs=1e-4)
