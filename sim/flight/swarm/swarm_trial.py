"""Measured episodes of swarms: goals reached, contacts, and recorded paths of some worlds."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from robo_rl.core.shapes import Bool, Float, Int64
from sim.engines.quad.layout import POS, QUAT
from sim.flight.swarm.swarm import Swarm
from sim.tasks.swarm.world import SwarmWorld

Columns = Callable[[Float[Tensor, "o n"]], Float[Tensor, "4 n"]]
_LAST_S = 1.0  # the distance to the goal is averaged over the last second
_DRAWN_EVERY = 4  # steps between two points of a path


@dataclass(frozen=True, slots=True)
class SwarmPaths:
    """Recorded paths of w worlds; t = recorded points, d = drones of a world."""

    time_s: Float[Tensor, " t"]
    position_m: Float[Tensor, "t 3 w d"]
    quat_wxyz: Float[Tensor, "t 4 w d"]
    goal_m: Float[Tensor, "t 3 w d"]
    cylinders: Float[Tensor, "2 w m"]
    failed: Bool[Tensor, "w d"]
    scenario: Int64[Tensor, " w"]


@dataclass(frozen=True, slots=True)
class SwarmTrial:
    """Outcomes per drone; w = episodes, d = drones."""

    scenario: Int64[Tensor, " w"]  # index in SCENARIOS
    reached: Bool[Tensor, "w d"]  # near the goal in the last second
    hit_drone: Bool[Tensor, "w d"]
    hit_cylinder: Bool[Tensor, "w d"]
    left: Bool[Tensor, "w d"]  # touched a wall, the floor or the ceiling
    time_to_goal_s: Float[Tensor, "w d"]  # time from which the drone stayed near its goal

    @property
    def collided(self) -> Bool[Tensor, "w d"]:
        return self.hit_drone | self.hit_cylinder | self.left

    @property
    def success(self) -> Bool[Tensor, "w d"]:
        return self.reached & ~self.collided

    def of(self, scenario: int) -> SwarmTrial:
        """Episodes of one scenario, given by its index."""
        chosen = self.scenario == scenario
        return SwarmTrial(*(getattr(self, item.name)[chosen] for item in fields(self)))


def measure(
    swarm: Callable[[int], Swarm], columns: Columns, episodes: int, drawn: int
) -> tuple[SwarmTrial, SwarmPaths]:
    """Fly `episodes` fresh worlds in batches; `swarm(i)` makes the i-th. Records the first `drawn` worlds."""
    first = swarm(0)
    trials, paths = [], None
    for index in range(math.ceil(episodes / first.worlds)):
        trial, found = fly_swarm(first if index == 0 else swarm(index), columns, min(drawn, first.worlds))
        trials.append(trial)
        paths = paths or found
    assert paths is not None
    joined = (
        torch.cat([getattr(trial, item.name) for trial in trials])[:episodes] for item in fields(SwarmTrial)
    )
    return SwarmTrial(*joined), paths


@torch.no_grad()
def fly_swarm(swarm: Swarm, columns: Columns, drawn: int) -> tuple[SwarmTrial, SwarmPaths]:
    """One whole episode in every world of a fresh swarm."""
    world, n = swarm.world, swarm.num
    hit_drone, hit_cylinder, left = (torch.zeros(n, dtype=torch.bool) for _ in range(3))
    last, far_at = torch.zeros(n), torch.zeros(n)
    last_steps = min(world.steps, round(_LAST_S / world.dt_s))
    recorded: list[tuple[Tensor, Tensor, Tensor]] = []
    for step in range(world.steps):
        swarm.advance(columns(swarm.obs))
        hit_drone |= swarm.contacts.drone
        hit_cylinder |= swarm.contacts.cylinder
        left |= world.outside(swarm.now.state[POS]) | swarm.contacts.floor
        distance = (swarm.aim[0:3] - swarm.now.state[POS]).norm(dim=0)
        far_at = torch.where(distance < world.reach_m, far_at, float(step + 1))
        if step >= world.steps - last_steps:
            last += distance / last_steps
        if step % _DRAWN_EVERY == 0:
            recorded.append(_picture(swarm, drawn))
    shape = (swarm.worlds, world.drones)
    outcome = (last < world.reach_m, hit_drone, hit_cylinder, left, far_at * world.dt_s)
    trial = SwarmTrial(swarm.now.scenario, *(value.view(shape) for value in outcome))
    return trial, _paths(swarm, recorded, ~trial.success[:drawn], world)


def _picture(swarm: Swarm, drawn: int) -> tuple[Tensor, Tensor, Tensor]:
    shape = (-1, swarm.worlds, swarm.world.drones)
    values = (swarm.now.state[POS], swarm.now.state[QUAT], swarm.aim[0:3])
    position, quat, goal = (value.reshape(shape)[:, :drawn].clone() for value in values)
    return position, quat, goal


def _paths(
    swarm: Swarm, recorded: list[tuple[Tensor, Tensor, Tensor]], failed: Tensor, world: SwarmWorld
) -> SwarmPaths:
    position, quat, goal = (torch.stack(column) for column in zip(*recorded, strict=True))
    time_s = (torch.arange(len(recorded)) * _DRAWN_EVERY + 1) * world.dt_s
    worlds = len(failed)
    return SwarmPaths(
        time_s, position, quat, goal, swarm.now.cylinders[:, :worlds], failed, swarm.now.scenario[:worlds]
    )
