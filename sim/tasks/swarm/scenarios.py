"""Random starts and goals of many worlds: five scenarios after QuadSwarm (arXiv 2306.09537, 2309.13285).

A goal is a point that moves around a rectangle on the lines between cells, which are free at any density. A
goal at rest has a rectangle of size 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from robo_rl.core.errors import ConfigError, UnknownNameError
from robo_rl.core.shapes import Float, Int64
from sim.tasks.swarm.world import ABSENT_M, CELL_M, SwarmWorld

SCENARIOS = ("random", "swap", "same_goal", "formation", "pursuit")
# Components of a goal: corner x, y, z, sides along x and y, start along the rectangle [m], speed [m/s].
GOAL_SIZE = 7
EVADER_M_S = 0.5  # speed of the goal of a pursuit
_SPACING_M = 0.5  # between neighbours of a formation
Uniform = Callable[..., Tensor]  # uniform(*shape): random numbers in [0, 1)


class Setup(NamedTuple):
    """Initial conditions of w worlds with d drones each."""

    cylinders: Float[Tensor, "2 w m"]  # axes [m]; ABSENT_M where there is none
    start_m: Float[Tensor, "3 w d"]
    goal: Float[Tensor, "7 w d"]
    scenario: Int64[Tensor, " w"]  # index in SCENARIOS


def check_scenarios(names: list[str]) -> tuple[str, ...]:
    """The names as a tuple. Raises UnknownNameError for an unknown name, ConfigError for an empty list."""
    if not names:
        raise ConfigError(f"scenarios=[] names no scenario. Name at least one of: {', '.join(SCENARIOS)}.")
    for name in names:
        if name not in SCENARIOS:
            raise UnknownNameError("scenario", name, SCENARIOS)
    return tuple(names)


def check_room(world: SwarmWorld, names: tuple[str, ...]) -> None:
    """Raise ConfigError, with the largest number of drones, for a formation too large for the room."""
    wide, _, high = world.room_m
    fits = min(wide / 2 - world.arm_m, (high - world.arm_m - world.low_m) / 2)
    if "formation" in names and (radius := _radius_m(world.drones)) > fits:
        raise ConfigError(
            f"A formation of {world.drones} drones begins in an upright circle of {2 * radius:.1f} m, and "
            f"there is room for {2 * fits:.1f} m: take at most {int(2.0 * math.pi * fits / _SPACING_M)} "
            "drones, or leave out the scenario 'formation'."
        )


def draw(
    world: SwarmWorld,
    names: tuple[str, ...],
    num: int,
    generator: torch.Generator,
    densities: tuple[float, float] | None = None,
    first: int = 0,
) -> Setup:
    """Initial conditions of `num` worlds, with the scenarios in turn from number `first` on.

    densities: range of the uniform random density; None: world.density.
    """
    rand = _GeneratorUniform(generator)
    chosen = torch.tensor([SCENARIOS.index(name) for name in names])
    scenario = chosen[(first + torch.arange(num)) % len(names)]
    low, high = densities or (world.density, world.density)
    count = (world.cells * (low + (high - low) * rand(num))).round().long()
    cylinders, free = place_cylinders(world, count, rand)
    start, goal = cell_points(world, free, rand), cell_points(world, free, rand)
    setup = Setup(cylinders, start, _resting(goal), scenario)
    swapped = _swap(start, goal)
    same = goal[:, :, :1].expand_as(goal)
    circle, grid = _circle(world, num, rand), _grid(world, num, rand)
    for index, points in ((1, swapped), (2, same), (3, grid)):
        setup = setup._replace(goal=_where(scenario == index, _resting(points), setup.goal))
    setup = setup._replace(start_m=_where(scenario == 3, circle, setup.start_m))
    return setup._replace(goal=_where(scenario == 4, _evader(world, num, rand), setup.goal))


def goal_at(goal: Float[Tensor, "7 n"], time_s: Tensor) -> tuple[Float[Tensor, "3 n"], Float[Tensor, "3 n"]]:
    """Position [m] and velocity [m/s] of every goal, `time_s` after the start."""
    x, y, z, wide, deep, way, speed = goal
    around = 2.0 * (wide + deep)
    along = torch.remainder(way + speed * time_s, around.clamp(min=1e-6))
    first, second, third = wide, wide + deep, 2.0 * wide + deep
    sides = [
        along < first,
        (along >= first) & (along < second),
        (along >= second) & (along < third),
        along >= third,
    ]
    moving = (around > 0.0).to(z.dtype) * speed
    one, two, three, four = (side.to(z.dtype) for side in sides)
    px = x + one * along + two * wide + three * (third - along)
    py = y + two * (along - first) + three * deep + four * (around - along)
    resting = around <= 0.0
    px, py = torch.where(resting, x, px), torch.where(resting, y, py)
    velocity = torch.stack([moving * (one - three), moving * (two - four), torch.zeros_like(z)])
    return torch.stack([px, py, z]), velocity


class _GeneratorUniform:
    """Uniform random numbers in [0, 1) from one generator."""

    def __init__(self, generator: torch.Generator) -> None:
        self.generator = generator

    def __call__(self, *shape: int) -> Tensor:
        return torch.rand(shape, generator=self.generator)


def place_cylinders(world: SwarmWorld, count: Int64[Tensor, " w"], rand: Uniform) -> tuple[Tensor, Tensor]:
    """Random cylinders: (axes (2, w, m) [m, world], mask of free cells of the floor (w, floor_cells))."""
    num, side = len(count), round(world.field_m / CELL_M)
    order = rand(num, world.cells).argsort(1)[:, : max(world.most_cylinders, 1)]
    stands = torch.arange(order.shape[1], device=order.device) < count.unsqueeze(1)
    across, along = order % side, order // side
    axes = (torch.stack([across, along]) + 0.5) * CELL_M - world.field_m / 2
    axes = torch.where(stands, axes, ABSENT_M)
    wide, deep = (round(world.room_m[i] / CELL_M) for i in (0, 1))
    cell = (across + (wide - side) // 2) + wide * (along + (deep - side) // 2)
    taken = torch.zeros(num, wide * deep, device=order.device).scatter_reduce_(
        1, cell, stands.float(), "amax"
    )
    return axes, taken < 0.5


def cell_points(world: SwarmWorld, free: Tensor, rand: Uniform) -> Float[Tensor, "3 w d"]:
    """For every drone the middle of a different free cell at a random height [m, world]."""
    num, cells = free.shape
    score = torch.where(free, rand(num, cells), -1.0)
    cell = score.topk(world.drones, dim=1).indices
    wide, deep = (round(world.room_m[i] / CELL_M) for i in (0, 1))
    x, y = (cell % wide + 0.5 - wide / 2) * CELL_M, (cell // wide + 0.5 - deep / 2) * CELL_M
    return torch.stack([x, y, world.low_m + (world.high_m - world.low_m) * rand(num, world.drones)])


def _swap(start: Tensor, other: Tensor) -> Tensor:
    """Goals of pairs of drones that exchange their starts; a last drone without a partner goes to `other`."""
    drones = start.shape[2]
    partner = torch.arange(drones) ^ 1
    goal = start[:, :, partner.clamp(max=drones - 1)]
    if drones % 2:
        goal[:, :, -1] = other[:, :, -1]
    return goal


def _circle(world: SwarmWorld, num: int, rand: Uniform) -> Tensor:
    """Points of an upright circle in a plane between cells, _SPACING_M apart, at the lowest height."""
    angle = 2.0 * math.pi * torch.arange(world.drones) / world.drones
    radius = _radius_m(world.drones)
    across = radius * angle.cos().expand(num, -1)
    up = world.low_m + radius * (1.0 + angle.sin()).expand(num, -1)
    return _upright(world, across, up, rand)


def _radius_m(drones: int) -> float:
    """Radius of the circle in which a formation begins."""
    return max(_SPACING_M * drones / (2.0 * math.pi), 0.4)


def _grid(world: SwarmWorld, num: int, rand: Uniform) -> Tensor:
    """Points of an upright grid, about twice as wide as high."""
    wide = max(1, math.ceil(math.sqrt(2.0 * world.drones)))
    index = torch.arange(world.drones)
    across = _SPACING_M * (index % wide - (wide - 1) / 2.0)
    up = world.low_m + _SPACING_M * (index // wide)
    return _upright(world, across.expand(num, -1), up.expand(num, -1), rand)


def _upright(world: SwarmWorld, across: Tensor, up: Tensor, rand: Uniform) -> Tensor:
    """Move points of an upright plane into a random plane x or y = whole metre, which no cylinder reaches."""
    num = len(across)
    lines = world.field_m / CELL_M - 1.0
    plane = ((rand(num, 1) * lines).floor() - (lines - 1.0) / 2.0) * CELL_M
    shift = (rand(num, 1) - 0.5) * max(0.0, world.room_m[0] - 1.5 - float(across.max() - across.min()))
    across, plane = across + shift, plane.expand_as(across)
    along_x = rand(num, 1) < 0.5
    return torch.stack([torch.where(along_x, across, plane), torch.where(along_x, plane, across), up])


def _evader(world: SwarmWorld, num: int, rand: Uniform) -> Float[Tensor, "7 w d"]:
    """The same moving goal for all drones of a world, around a rectangle of whole metres."""
    lines = world.field_m / CELL_M - 1.0
    low = -(lines - 1.0) / 2.0
    corner = torch.stack([(rand(num) * (lines - 2.0)).floor() + low for _ in range(2)])
    sides = torch.stack(
        [1.0 + (rand(num) * (low + lines - 2.0 - at)).floor().clamp(min=0.0) for at in corner]
    )
    height = world.low_m + (world.high_m - world.low_m) * rand(num)
    way = rand(num) * 2.0 * sides.sum(0)
    goal = torch.stack([*(corner * CELL_M), height, *(sides * CELL_M), way, torch.full_like(way, EVADER_M_S)])
    return goal.unsqueeze(2).expand(-1, -1, world.drones)


def _resting(points: Float[Tensor, "3 w d"]) -> Float[Tensor, "7 w d"]:
    """Goals at rest at these points."""
    return torch.cat([points, torch.zeros(GOAL_SIZE - 3, *points.shape[1:])])


def _where(worlds: Tensor, new: Tensor, old: Tensor) -> Tensor:
    """`new` in the masked worlds, `old` in the others."""
    return torch.where(worlds.view(1, -1, 1), new, old)
