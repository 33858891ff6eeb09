"""Obstacles: reach a goal through a field of cylinders without touching one, in the swarm's room with one
drone.

Randomisation: cells with a cylinder, start and goal cells and heights, velocity, attitude and rates, a
constant force and torque; in training the density. The policy observes the nearest cylinders whose axes are
within 1.5 m, in body axes. Success: no contact, and a mean distance to the goal below `world.reach_m` over
the last second. Reward: minus the distance from a guidance velocity around the cylinders
(sim/tasks/swarm/guidance.py), which the policy does not observe, minus nearness to cylinders and walls and
handling costs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from robo_rl.core.errors import ConfigError
from robo_rl.core.shapes import Bool, Float
from sim.engines.quad.craft import Craft
from sim.engines.quad.layout import EXTERNAL_SIZE, POS, VEL, xyz
from sim.tasks.flight.course import (
    ATTITUDE_NUMBERS,
    BODY_SCALES,
    BODY_UNITS,
    CourseTask,
    Room,
    body_obs,
    speed_facts,
    state_from_body_obs,
    world_to_body,
)
from sim.tasks.flight.protocol import FlightOutcome, FlightStep, FlightTransition, Score
from sim.tasks.swarm.cells import SIGHT_M, cell_bits, grid, nearest_cylinders, touches_cylinder
from sim.tasks.swarm.guidance import wanted_velocity
from sim.tasks.swarm.scenarios import cell_points, place_cylinders
from sim.tasks.swarm.terms import FINE_M, GOAL_M, Weights, bounded_offset, danger
from sim.tasks.swarm.world import CELL_M, SwarmWorld, arm_m, check_world

PATHS = ("none", "straight", "planned")  # references for classical controllers
CYLINDER_SIZE = 3  # observed numbers of a cylinder
_GOAL = slice(EXTERNAL_SIZE, EXTERNAL_SIZE + 3)
_START = slice(EXTERNAL_SIZE + 3, EXTERNAL_SIZE + 6)
_BITS = slice(EXTERNAL_SIZE + 6, None)


@dataclass(frozen=True, slots=True)
class ObstacleTask(CourseTask):
    """Fly 9 m from one end of the room to the other; in training (`anywhere`) between any two free cells.

    path: the reference of classical controllers, a point that moves with the guidance velocity from the
    start: `straight` ignores the cylinders, `planned` leads around them, `none` gives the goal itself
    (training). Policies do not observe it.
    """

    world: SwarmWorld = field(default_factory=lambda: SwarmWorld(drones=1))
    weights: Weights = field(default_factory=Weights)
    cylinders: int = 4  # observed ones
    path: str = "straight"
    anywhere: bool = False
    least_density: float | None = None  # densities are drawn between this and the world's; None: the world's
    start_speed_m_s: float = 0.3
    max_steps: int = 1500
    train_steps: int = 800
    w_velocity: float = 1.0
    w_edge: float = 20.0

    @property
    def name(self) -> str:
        return "obstacles"

    @property
    def speed_limit_m_s(self) -> float:
        return 1.2 * self.weights.guidance.most_m_s

    @property
    def room(self) -> Room:
        wide, deep, high = self.world.room_m
        return Room((-wide / 2, -deep / 2, 0.0), (wide / 2, deep / 2, high))

    @property
    def scene(self) -> tuple[tuple[float, float, float], float]:
        return self.room.scene

    @property
    def floor_m(self) -> float:
        return self.room.low_m[2]

    @property
    def settle_steps(self) -> int:
        """Number of last steps of an episode over which the distance to the goal is averaged."""
        return min(self.max_steps, round(1.0 / self.dt_s))

    @property
    def start_numbers(self) -> int:
        return ATTITUDE_NUMBERS + 1 + self.world.cells + self.world.floor_cells + 4

    @property
    def task_state_size(self) -> int:
        """1: touched a cylinder (0 or 1); with a path 6 more: position and velocity of the point on it."""
        return 1 if self.path == "none" else 7

    @property
    def scales(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        return BODY_SCALES, (1.0,) * (CYLINDER_SIZE * self.cylinders)

    @property
    def units(self) -> tuple[str, str]:
        front = BODY_UNITS.replace("goal m", f"goal m (bent towards {GOAL_M:g} m)")
        return front, f"{self.cylinders} nearest cylinders 2 at the surface ... 0 out of sight, in body axes"

    def start(
        self, craft: Craft, uniform: Float[Tensor, "u n"]
    ) -> tuple[Float[Tensor, "17 n"], Float[Tensor, "e n"]]:
        """Start in the middle of a free cell; the disturbance, then goal, start, and bits of full cells."""
        num = uniform.shape[1]
        deal = _GivenNumbers(uniform[ATTITUDE_NUMBERS:])
        low = self.world.density if self.least_density is None else self.least_density
        count = (self.world.cells * (low + (self.world.density - low) * deal(num))).round().long()
        _, free = place_cylinders(self.world, count, deal)
        start, goal = cell_points(replace(self.world, drones=2), free, deal).unbind(2)
        if not self.anywhere:
            start, goal = (
                _at_the_wall(point, side, self.world) for point, side in ((start, -1.0), (goal, 1.0))
            )
        velocity = (2.0 * uniform[12:15] - 1.0) * self.start_speed_m_s
        state, pushed = self.start_with(craft, uniform, start, velocity)
        return state, torch.cat([pushed, goal, start, cell_bits(free, self.world)])

    def first(self, external: Tensor) -> Tensor:
        untouched = torch.zeros_like(external[:1])
        if self.path == "none":
            return untouched
        return torch.cat([untouched, external[_START], 0.0 * external[_START]])

    def advance(self, before: Tensor, after: Tensor, external: Tensor, task_state: Tensor) -> Tensor:
        touched = torch.maximum(
            task_state[:1], self.touches(after, external).to(task_state.dtype).unsqueeze(0)
        )
        if self.path == "none":
            return touched
        at = task_state[1:4]
        planned = self.path == "planned"
        near = nearest_cylinders(external[_BITS], at, self.world, self.cylinders) if planned else None
        velocity = self.wanted(at, external, near)
        return torch.cat([touched, at + self.dt_s * velocity, velocity])

    def touches(self, state: Tensor, external: Tensor) -> Bool[Tensor, " n"]:
        """Mask of drones in contact with a cylinder."""
        return touches_cylinder(external[_BITS], state[POS], self.world)

    def wanted(self, position_m: Tensor, external: Tensor, axes: Float[Tensor, "2 k n"] | None) -> Tensor:
        """Guidance velocity (3, n) [m/s, world] to the goal around the cylinders at `axes`, nearest first."""
        # The nearest comes last: the later a cylinder is applied, the more it counts.
        offsets = [] if axes is None else [_flat(axis - position_m[0:2]) for axis in reversed(axes.unbind(1))]
        to_goal, still = xyz(external[_GOAL] - position_m), xyz(torch.zeros_like(position_m))
        return torch.stack(wanted_velocity(to_goal, still, [], offsets, self.weights.guidance))

    def relative(self, state: Tensor, external: Tensor, task_state: Tensor) -> Tensor:
        return torch.cat([state[POS] - external[_GOAL], state[3:]])

    def view(self, seen: Tensor, external: Tensor, task_state: Tensor) -> tuple[Tensor, Tensor]:
        """Observations in body axes, and behind the memory the cylinders near the measured position."""
        place = seen[0:3] + external[_GOAL]
        axes = nearest_cylinders(external[_BITS], place, self.world, self.cylinders)
        things = [
            world_to_body(seen, sight(axis - place[0:2], self.world.cylinder_m)) for axis in axes.unbind(1)
        ]
        return body_obs(torch.cat([bounded_offset(seen[0:3], GOAL_M), seen[3:]])), torch.cat(things)

    def measured(self, obs: Tensor, state: Tensor, external: Tensor, task_state: Tensor) -> Tensor:
        return state_from_body_obs(torch.cat([_unbounded(obs[0:3], GOAL_M), obs[3:]]), state, external[_GOAL])

    def reference(self, external: Tensor, task_state: Tensor) -> Float[Tensor, "10 n"]:
        """The point on the path; with path `none` the goal."""
        led = task_state[1:7] if self.path != "none" else torch.cat([external[_GOAL], 0.0 * external[_GOAL]])
        return torch.cat([led, led.new_zeros(4, led.shape[1])])

    def course_terms(self, transition: FlightTransition) -> dict[str, Tensor]:
        """Cost of velocity error, danger and walls. The guidance velocity is a target without gradient."""
        place, velocity, how = transition.after[POS], transition.after[VEL], self.weights
        axes = nearest_cylinders(transition.external[_BITS], place.detach(), self.world, self.cylinders)
        error = (velocity - self.wanted(place.detach(), transition.external, axes).detach()).square().sum(0)
        beside, flat = place[0:2].unsqueeze(1) - axes, velocity[0:2].unsqueeze(1)
        peril = danger(
            beside, flat, self.world.touch_cylinder_m, how.warn_cylinder_m, how.brake_cylinder_m, how
        )  # fmt: skip
        return {
            "velocity": self.w_velocity * (torch.sqrt(error + 0.01) - 0.1),
            "danger": peril,
            "edge": self.w_edge * self.room.edge(place, 0.4),
        }

    def over(self, transition: FlightTransition) -> tuple[Bool[Tensor, " n"], Bool[Tensor, " n"]]:
        ended = (transition.task_state[0] > 0.5) | self.room.outside(transition.after[POS])
        return ended, ended

    def score(self, flown: FlightOutcome) -> Score:
        """Success: no contact, and the mean distance over the last second is below `world.reach_m`."""
        ended = flown.left.any(0)
        far = flown.offset_m.norm(dim=1)
        error = far[-self.settle_steps :].mean(0)
        success = ~ended & (error < self.world.reach_m)
        inside = far < self.world.reach_m
        arrived = (inside.float().cummax(0).values < 0.5).sum(0)[success] * self.dt_s
        speed = flown.velocity_m_s.norm(dim=1)[~flown.left & ~inside]
        hit = ((flown.task_state[:, 0] > 0.5) & (flown.left.cumsum(0) <= 1)).any(0)
        facts = {
            "hit_a_cylinder": float(hit.float().mean()),
            "time_to_goal_s": float(arrived.mean()) if len(arrived) else None,
            "mean_speed_m_s": speed_facts(speed)["mean_speed_m_s"],
        }
        return Score(error[~ended], ended, success, facts)

    def tally(self, tally: Float[Tensor, " n"], flying: FlightStep) -> Float[Tensor, " n"]:
        """Sum of the distance to the goal [m] over the steps of the last second."""
        late = flying.age > self.max_steps - self.settle_steps
        return tally + torch.where(late, flying.offset_m.norm(dim=0), 0.0)

    def verdict(
        self, tally: Float[Tensor, " n"], flying: FlightStep
    ) -> tuple[Bool[Tensor, " n"], Float[Tensor, " n"] | None]:
        """Success and error [m], known only at the end of an episode: before it False and infinity."""
        stayed = (flying.age >= self.max_steps) & ~flying.left
        error_m = torch.where(stayed, tally / self.settle_steps, math.inf)
        return error_m < self.world.reach_m, error_m


def sight(offset: Float[Tensor, "2 n"], radius_m: float) -> Float[Tensor, "3 n"]:
    """Observation of a cylinder at this horizontal offset: a vector towards its axis, z = 0.

    Its length is 2 at the surface, about 1 FINE_M away from it, and 0 from SIGHT_M on.
    """
    far = torch.sqrt(offset.square().sum(0) + 1e-8)
    gap = torch.relu(far - radius_m)
    least = FINE_M / (FINE_M + SIGHT_M - radius_m)
    length = torch.relu(FINE_M / (FINE_M + gap) - least) * (2.0 / (1.0 - least))
    x, y = offset
    return torch.stack([x / far * length, y / far * length, torch.zeros_like(x)])


def check_obstacles(task: ObstacleTask, craft: Craft) -> None:
    """Raise ConfigError, with the bound, for a world that cannot be filled or gaps too narrow to fly."""
    check_world(task.world)
    if not 1 <= task.cylinders <= 9:
        raise ConfigError(
            f"cylinders = {task.cylinders} cannot be observed: expected 1 ... 9, because only the nine cells "
            "around the craft are searched."
        )
    gap_m = CELL_M - 2.0 * task.world.cylinder_m
    if 2.0 * arm_m(craft) >= 0.6 * gap_m:
        raise ConfigError(
            f"Craft '{craft.name}' is {2.0 * arm_m(craft):.2f} m wide, and neighbouring cylinders leave "
            f"{gap_m:g} m: at most {0.6 * gap_m:.2f} m can be flown through. Choose a smaller craft, for "
            "example craft=cf2x_l2f."
        )


def field_axes(external: Float[Tensor, "e 1"], world: SwarmWorld) -> Float[Tensor, "2 m"]:
    """Axes [m, world] of all cylinders of one episode."""
    wide, deep = grid(world)
    bits = external[_BITS, 0].long().unsqueeze(1) >> torch.arange(wide, device=external.device) & 1
    row, column = bits.nonzero(as_tuple=True)
    return torch.stack([column + 0.5 - wide / 2, row + 0.5 - deep / 2]) * CELL_M


class _GivenNumbers:
    """Uniform numbers for sim/tasks/swarm/scenarios.py, taken in order from a given array."""

    def __init__(self, uniform: Float[Tensor, "u n"]) -> None:
        self.uniform, self.used = uniform, 0

    def __call__(self, *shape: int) -> Tensor:
        count = math.prod(shape[1:])
        self.used += count
        return self.uniform[self.used - count : self.used].T.reshape(shape)


def _at_the_wall(point: Float[Tensor, "3 n"], side: float, world: SwarmWorld) -> Tensor:
    """The same y and height in the outermost cells on one side, where no cylinder stands."""
    wide, _ = grid(world)
    return torch.cat([torch.full_like(point[:1], side * (wide - 1) / 2 * CELL_M), point[1:]])


def _unbounded(bounded: Float[Tensor, "3 n"], limit_m: float) -> Tensor:
    """The inverse of `bounded_offset`."""
    return bounded * torch.rsqrt((1.0 - bounded.square().sum(0, keepdim=True) / limit_m**2).clamp(min=1e-6))


def _flat(vector: Tensor) -> tuple[Tensor, Tensor]:
    x, y = vector.unbind(0)
    return x, y
