"""A field of cylinders: neighbours, collisions, observation, success."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from robo_rl.core.errors import ConfigError
from sim.engines.quad.craft import load_craft
from sim.engines.quad.layout import POS, QUAT, STATE_SIZE, VEL
from sim.flight.command import motors_hover
from sim.flight.flight import first_observation
from sim.tasks.flight.observation import FlightSenses
from sim.tasks.flight.obstacles import ObstacleTask, check_obstacles, field_axes, sight
from sim.tasks.flight.protocol import FlightOutcome
from sim.tasks.swarm.cells import SIGHT_M, cell_bits, nearest_cylinders, touches_cylinder
from sim.tasks.swarm.world import ABSENT_M, SwarmWorld

CRAFT = load_craft("cf2x_l2f")
WORLD = SwarmWorld(drones=1, density=0.5)
TASK = ObstacleTask(WORLD)


def drawn(task: ObstacleTask, num: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    unit = torch.rand(task.start_numbers, num, generator=torch.Generator().manual_seed(seed))
    return task.start(CRAFT, unit)


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10_000), st.floats(0.0, 1.0))
def test_the_nearest_of_bits_are_the_nearest_of_all(seed: int, density: float) -> None:
    """Compared with a search over all axes, in and around the room, at every density."""
    task = replace(TASK, world=replace(WORLD, density=density))
    _, external = drawn(task, 3, seed)
    place = 12.0 * torch.rand(3, 3, generator=torch.Generator().manual_seed(seed)) - 6.0
    found = nearest_cylinders(external[15:], place, task.world, 4)
    touched = touches_cylinder(external[15:], place, task.world)
    for i in range(3):
        axes = field_axes(external[:, i : i + 1], task.world)
        assert axes.shape[1] == task.world.most_cylinders
        far = (axes - place[:2, i : i + 1]).norm(dim=0)
        least = far[far < SIGHT_M].sort().values[:4]
        seen = (found[:, :, i] - place[:2, i : i + 1]).norm(dim=0)
        torch.testing.assert_close(seen[: len(least)], least, atol=1e-5, rtol=0.0)
        assert (found[:, len(least) :, i] == ABSENT_M).all()
        assert bool(touched[i]) == bool((far < task.world.touch_cylinder_m).any())


def test_bits_by_hand() -> None:
    """Cells 0, 3 and 9 of the second row are taken: 1 + 8 + 512."""
    free = torch.ones(1, 100, dtype=torch.bool)
    free[0, [10, 13, 19]] = False
    bits = cell_bits(free, WORLD)
    assert bits[:, 0].tolist() == [0.0, 521.0] + [0.0] * 8
    assert touches_cylinder(bits, torch.tensor([[-1.5], [-3.5 + 0.33], [1.0]]), WORLD)
    assert not touches_cylinder(bits, torch.tensor([[-1.5], [-3.5 + 0.35], [1.0]]), WORLD)


def test_evaluation_flights_cross_the_field() -> None:
    """Measured: 9 m from the free cells of one wall to those of the other. Training: any cells, but not the
    same.
    """
    state, external = drawn(TASK, 200)
    goal = external[9:12]
    assert (state[0] == -4.5).all()
    assert (goal[0] == 4.5).all()
    assert not TASK.touches(state, external).any()
    training = replace(TASK, anywhere=True, path="none", least_density=0.0)
    state, external = drawn(training, 200)
    assert (state[POS] - external[9:12]).norm(dim=0).min() > 0.99
    assert not training.touches(state, external).any()
    count = [field_axes(external[:, i : i + 1], WORLD).shape[1] for i in range(200)]
    assert min(count) < 5
    assert max(count) > 28
    assert max(count) <= 32


def test_sight_by_hand() -> None:
    """2 at the surface; 0.3 m off it 0.3 / 0.6 less the 0.2 that is left at 1.5 m, over 0.8, times 2; then
    nothing.
    """
    offset = torch.tensor([[0.3, 0.0, -1.5, ABSENT_M], [0.0, 0.6, 0.0, ABSENT_M]])
    expected = torch.tensor([[2.0, 0.0, 0.0, 0.0], [0.0, 0.75, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]])
    torch.testing.assert_close(sight(offset, 0.3), expected, atol=1e-5, rtol=0.0)


def test_observation_does_not_depend_on_the_heading() -> None:
    """The craft turned by 90 degrees together with goal and cylinders sees the same."""
    free = torch.ones(1, 100, dtype=torch.bool)
    free[0, 56] = False  # at x = 1.5, y = 0.5
    turned = torch.ones(1, 100, dtype=torch.bool)
    turned[0, 64] = False  # at x = -0.5, y = 1.5
    state = torch.zeros(STATE_SIZE, 1)
    state[POS], state[3], state[VEL] = (
        torch.tensor([[1.0], [0.2], [2.0]]),
        1.0,
        torch.tensor([[0.5], [0.1], [0.0]]),
    )
    other = state.clone()
    other[POS], other[VEL] = torch.tensor([[-0.2], [1.0], [2.0]]), torch.tensor([[-0.1], [0.5], [0.0]])
    other[QUAT] = torch.tensor([[math.sqrt(0.5)], [0.0], [0.0], [math.sqrt(0.5)]])
    still, goal, goal_turned = (
        torch.zeros(9, 1),
        torch.tensor([[3.0], [1.0], [2.5]]),
        torch.tensor([[-1.0], [3.0], [2.5]]),
    )
    task, senses = replace(TASK, path="none"), FlightSenses(integral=False, noise=False)
    one = first_observation(
        state,
        torch.cat([still, goal, state[POS], cell_bits(free, WORLD)]),
        None,
        motors_hover(CRAFT),
        task,
        senses,
    )
    placed = torch.cat([still, goal_turned, other[POS], cell_bits(turned, WORLD)])
    two = first_observation(other, placed, None, motors_hover(CRAFT), task, senses)
    torch.testing.assert_close(one[1], two[1], atol=1e-5, rtol=0.0)
    assert one[1][-12:-9].norm() > 0.5


def test_controllers_get_the_full_goal_position() -> None:
    """The goal is observed with its distance compressed towards 1.5 m; the inverse gives its position, 9 m
    away.
    """
    state, external = drawn(TASK, 5)
    kept = TASK.first(external)
    _, obs = first_observation(
        state, external, None, motors_hover(CRAFT), TASK, FlightSenses(integral=False, noise=False)
    )
    measured = TASK.measured(obs, state, external, kept)
    torch.testing.assert_close(measured[0:13], state[0:13], atol=2e-3, rtol=0.0)


def test_planned_and_straight_paths() -> None:
    """The point on the path, in steps of 40 ms, at half density: both arrive, one without contact."""
    touched, far = {}, {}
    for path in ("straight", "planned"):
        task = replace(TASK, path=path, dt_s=0.04)
        state, external = drawn(task, 12)
        kept, hit = task.first(external), torch.zeros(12, dtype=torch.bool)
        for _ in range(375):
            kept = task.advance(state, state, external, kept)
            hit |= touches_cylinder(external[15:], kept[1:4], task.world)
        touched[path], far[path] = int(hit.sum()), (kept[1:4] - external[9:12]).norm(dim=0)
    assert touched["straight"] >= 10
    assert touched["planned"] == 0
    assert far["straight"].max() < 0.1
    assert (far["planned"] < 0.1).sum() >= 11


def test_reached_is_the_last_second_and_touching_ends_it() -> None:
    """Three drones: at the goal from the middle on; there, but it touched on the way; never there."""
    steps = 400
    offset = torch.full((steps, 3, 3), 3.0)
    offset[200:, :, :2] = 0.1
    kept, left = torch.zeros(steps, 7, 3), torch.zeros(steps, 3, dtype=torch.bool)
    kept[150:, 0, 1], left[150:, 1] = 1.0, True
    score = TASK.score(FlightOutcome(offset, torch.ones(steps, 3, 3), kept, left))
    assert score.success.tolist() == [True, False, False]
    assert score.facts["hit_a_cylinder"] == pytest.approx(1 / 3)
    assert score.facts["time_to_goal_s"] == pytest.approx(2.0)
    assert score.ended.tolist() == [False, True, False]


@pytest.mark.parametrize(
    ("task", "craft", "words"),
    [
        (replace(TASK, world=replace(WORLD, density=1.5)), "cf2x_l2f", r"density = 1\.5 is out of range"),
        (TASK, "x500", "leave 0.4 m"),
        (replace(TASK, cylinders=10), "cf2x_l2f", "1 ... 9"),
    ],
)
def test_impossible_fields_are_refused(task: ObstacleTask, craft: str, words: str) -> None:
    """With the violated bound."""
    with pytest.raises(ConfigError, match=words):
        check_obstacles(task, load_craft(craft))
