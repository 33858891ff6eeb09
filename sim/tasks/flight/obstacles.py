"""Reach a goal through a field of cylinders without touching one: the room of the swarm, for a single drone.

Seen: the nearest cylinders within 1.5 m of their axes, in body axes. The cost of a step asks for a velocity
that leads around them (sim/tasks/swarm/guidance.py), which only training knows, and charges for coming near.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from robo_rl.core.errors import ConfigError
from sim.engines.quad.craft import Craft
from sim.engines.quad.layout import EXTERNAL_SIZE, POS, VEL
from sim.tasks.flight.course import (
    ATTITUDE_NUMBERS,
    FRONT_SCALES,
    FRONT_UNITS,
    Room,
    body_front,
    disturbance,
    from_body_front,
    handling_terms,
    in_body,
    pay,
    upright,
)
from sim.tasks.flight.protocol import FlightOutcome, FlightStep, FlightTransition, Score
from sim.tasks.swarm.cells import SIGHT_M, cell_bits, grid, nearest_cylinders, touches_cylinder
from sim.tasks.swarm.guidance import Vec, wanted_velocity
from sim.tasks.swarm.scenarios import cell_points, stand_cylinders
from sim.tasks.swarm.terms import FINE_M, GOAL_M, Weights, danger, short
from sim.tasks.swarm.world import CELL_M, SwarmWorld, arm_m, check_world

PATHS = ("none", "straight", "planned")  # what classical controllers are given
CYLINDER_SIZE = 3  # per cylinder
_GOAL = slice(EXTERNAL_SIZE, EXTERNAL_SIZE + 3)
_START = slice(EXTERNAL_SIZE + 3, EXTERNAL_SIZE + 6)
_BITS = slice(EXTERNAL_SIZE + 6, None)


@dataclass(frozen=True, slots=True)
class ObstacleTask:
    """From one end of the room to the other, 9 m; in training (`anywhere`) from any free cell to any other.

    path: what `reference` leads classical controllers along: a point that flies the wanted velocity from the
    start on, `straight` as if there were no cylinders, `planned` around them. Policies do not see it;
    training has `none`.
    """

    world: SwarmWorld = field(default_factory=lambda: SwarmWorld(drones=1))
    weights: Weights = field(default_factory=Weights)
    cylinders: int = 4  # that are seen
    path: str = "straight"
    anywhere: bool = False
    least_density: float | None = None  # densities are drawn between this and the world's; none: the world's
    start_tilt_rad: float = 0.3
    start_speed_m_s: float = 0.3
    start_rate_rad_s: float = 0.5
    force_std: float = 0.02
    torque_std: float = 1e-4
    max_steps: int = 1500
    train_steps: int = 800
    dt_s: float = 0.01
    w_alive: float = 5.0  # what a step is worth, so that ending a flight early is never cheap
    w_velocity: float = 1.0
    w_rate: float = 0.005
    w_action: float = 0.02
    w_action_rate: float = 0.1
    w_speed: float = 1.0
    w_edge: float = 20.0

    @property
    def name(self) -> str:
        return "obstacles"

    @property
    def moves(self) -> bool:
        """True: what is seen comes from the vehicle's own mapping."""
        return True

    @property
    def room(self) -> Room:
        wide, deep, high = self.world.room_m
        return Room((-wide / 2, -deep / 2, 0.0), (wide / 2, deep / 2, high))

    @property
    def scene(self) -> tuple[tuple[float, float, float], float]:
        return self.room.scene

    @property
    def settle_steps(self) -> int:
        """The last steps of an episode, over which the distance to the goal counts."""
        return min(self.max_steps, round(1.0 / self.dt_s))

    @property
    def start_numbers(self) -> int:
        return ATTITUDE_NUMBERS + 1 + self.world.cells + self.world.floor_cells + 4

    @property
    def task_state_size(self) -> int:
        """Has it touched a cylinder; place and velocity of the point on the path, where there is one."""
        return 1 if self.path == "none" else 7

    @property
    def scales(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        return FRONT_SCALES, (1.0,) * (CYLINDER_SIZE * self.cylinders)

    @property
    def units(self) -> tuple[str, str]:
        front = FRONT_UNITS.replace("goal m", f"goal m (bent towards {GOAL_M:g} m)")
        return front, f"{self.cylinders} nearest cylinders 2 at the surface ... 0 out of sight, in body axes"

    def start(
        self, craft: Craft, unit: Float[Tensor, "u n"]
    ) -> tuple[Float[Tensor, "17 n"], Float[Tensor, "e n"]]:
        """In the middle of a free cell; below the disturbance goal, start, and which cells are taken."""
        num = unit.shape[1]
        deal = _Deal(unit[ATTITUDE_NUMBERS:])
        low = self.world.density if self.least_density is None else self.least_density
        count = (self.world.cells * (low + (self.world.density - low) * deal(num))).round().long()
        _, free = stand_cylinders(self.world, count, deal)
        start, goal = cell_points(replace(self.world, drones=2), free, deal).unbind(2)
        if not self.anywhere:
            start, goal = (
                _at_the_wall(point, side, self.world) for point, side in ((start, -1.0), (goal, 1.0))
            )
        push = disturbance(craft, unit[6:12], self.force_std, self.torque_std)
        velocity = (2.0 * unit[12:15] - 1.0) * self.start_speed_m_s
        state = upright(
            start, velocity, unit[0:6], self.start_tilt_rad, self.start_rate_rad_s, craft.hover_speed
        )
        return state, torch.cat([push, goal, start, cell_bits(free, self.world)])

    def first(self, external: Tensor) -> Tensor:
        untouched = torch.zeros_like(external[:1])
        return (
            untouched
            if self.path == "none"
            else torch.cat([untouched, external[_START], 0.0 * external[_START]])
        )

    def advance(self, before: Tensor, after: Tensor, external: Tensor, task_state: Tensor) -> Tensor:
        touched = torch.maximum(
            task_state[:1], self.touches(after, external).to(task_state.dtype).unsqueeze(0)
        )
        if self.path == "none":
            return touched
        at = task_state[1:4]
        near = (
            nearest_cylinders(external[_BITS], at, self.world, self.cylinders)
            if self.path == "planned"
            else None
        )
        velocity = self.wanted(at, external, near)
        return torch.cat([touched, at + self.dt_s * velocity, velocity])

    def touches(self, state: Tensor, external: Tensor) -> Bool[Tensor, " n"]:
        return touches_cylinder(external[_BITS], state[POS], self.world)

    def wanted(self, position_m: Tensor, external: Tensor, axes: Float[Tensor, "2 k n"] | None) -> Tensor:
        """The velocity that leads there, (3, n): around these cylinders, the nearest of which has the last
        word.
        """
        offsets = [] if axes is None else [_flat(axis - position_m[0:2]) for axis in reversed(axes.unbind(1))]
        still = torch.zeros_like(position_m)
        wanted = wanted_velocity(
            _rows(external[_GOAL] - position_m), _rows(still), [], offsets, self.weights.guidance
        )  # fmt: skip
        return torch.stack(wanted)

    def relative(self, state: Tensor, external: Tensor, task_state: Tensor) -> Tensor:
        return torch.cat([state[POS] - external[_GOAL], state[3:]])

    def view(self, seen: Tensor, external: Tensor, task_state: Tensor) -> tuple[Tensor, Tensor]:
        """Observations in body axes; cylinders relative to the estimated position."""
        place = seen[0:3] + external[_GOAL]
        axes = nearest_cylinders(external[_BITS], place, self.world, self.cylinders)
        things = [in_body(seen, sight(axis - place[0:2], self.world.cylinder_m)) for axis in axes.unbind(1)]
        return body_front(torch.cat([short(seen[0:3], GOAL_M), seen[3:]])), torch.cat(things)

    def measured(self, obs: Tensor, state: Tensor, external: Tensor, task_state: Tensor) -> Tensor:
        return from_body_front(torch.cat([_long(obs[0:3], GOAL_M), obs[3:]]), state, external[_GOAL])

    def reference(self, external: Tensor, task_state: Tensor) -> Float[Tensor, "10 n"]:
        """The point on the path; the goal where there is none."""
        led = task_state[1:7] if self.path != "none" else torch.cat([external[_GOAL], 0.0 * external[_GOAL]])
        return torch.cat([led, torch.zeros(4, led.shape[1])])

    def terms(self, transition: FlightTransition) -> dict[str, Tensor]:
        """Cost terms by name, each (n,). No gradient goes through the wanted velocity: it is a target."""
        place, velocity, how = transition.after[POS], transition.after[VEL], self.weights
        axes = nearest_cylinders(transition.external[_BITS], place.detach(), self.world, self.cylinders)
        error = (velocity - self.wanted(place.detach(), transition.external, axes).detach()).square().sum(0)
        beside, flat = place[0:2].unsqueeze(1) - axes, velocity[0:2].unsqueeze(1)
        peril = danger(
            beside, flat, self.world.touch_cylinder_m, how.warn_cylinder_m, how.brake_cylinder_m, how
        )  # fmt: skip
        return {
            "alive": torch.full_like(place[0], -self.w_alive),
            "velocity": self.w_velocity * (torch.sqrt(error + 0.01) - 0.1),
            "danger": peril,
            "edge": self.w_edge * self.room.edge(place, 0.4),
            **handling_terms(transition, self.w_rate, self.w_action, self.w_action_rate, self.w_speed,
                             1.2 * how.guidance.most_m_s),
        }  # fmt: skip

    def cost(self, transition: FlightTransition) -> Float[Tensor, " n"]:
        return sum(self.terms(transition).values(), torch.zeros_like(transition.after[0]))

    def reward(self, cost: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
        """Reward of a step by `pay`: the cost already contains the value of staying in flight."""
        return pay(cost, self.w_alive)

    def over(self, transition: FlightTransition) -> tuple[Bool[Tensor, " n"], Bool[Tensor, " n"]]:
        ended = (transition.task_state[0] > 0.5) | self.room.outside(transition.after[POS])
        return ended, ended

    def score(self, flown: FlightOutcome) -> Score:
        """Success: never touched anything, and the mean distance over the last second is below the world's
        reach.
        """
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
            "mean_speed_m_s": float(speed.mean()) if len(speed) else None,
        }
        return Score(error[~ended], ended, success, facts)

    def tally(self, tally: Float[Tensor, " n"], flying: FlightStep) -> Float[Tensor, " n"]:
        """Sum over the last second of the distance to the goal."""
        late = flying.age > self.max_steps - self.settle_steps
        return tally + torch.where(late, flying.offset_m.norm(dim=0), 0.0)

    def verdict(
        self, tally: Float[Tensor, " n"], flying: FlightStep
    ) -> tuple[Bool[Tensor, " n"], Float[Tensor, " n"] | None]:
        """Known at the end of an episode, not before."""
        stayed = (flying.age >= self.max_steps) & ~flying.left
        error_m = torch.where(stayed, tally / self.settle_steps, math.inf)
        return error_m < self.world.reach_m, error_m


def sight(offset: Float[Tensor, "2 n"], radius_m: float) -> Float[Tensor, "3 n"]:
    """A level direction to an axis, 2 long at the surface, half of that FINE_M away, fading to 0 at
    SIGHT_M.
    """
    far = torch.sqrt(offset.square().sum(0) + 1e-8)
    gap = torch.relu(far - radius_m)
    least = FINE_M / (FINE_M + SIGHT_M - radius_m)
    length = torch.relu(FINE_M / (FINE_M + gap) - least) * (2.0 / (1.0 - least))
    x, y = offset
    return torch.stack([x / far * length, y / far * length, torch.zeros_like(x)])


def check_obstacles(task: ObstacleTask, craft: Craft) -> None:
    """Raises ConfigError, with the bound, for a field that cannot be filled or that the craft does not fit
    through.
    """
    check_world(task.world)
    if not 1 <= task.cylinders <= 9:
        raise ConfigError(
            f"cylinders = {task.cylinders} cannot be seen: 1 ... 9, those of the nine cells around."
        )
    gap_m = CELL_M - 2.0 * task.world.cylinder_m
    if 2.0 * arm_m(craft) >= 0.6 * gap_m:
        raise ConfigError(
            f"Craft '{craft.name}' is {2.0 * arm_m(craft):.2f} m wide, and neighbouring cylinders leave "
            f"{gap_m:g} m: at most {0.6 * gap_m:.2f} m can be flown through. Choose a smaller craft, for "
            "example craft=cf2x_l2f."
        )


def field_axes(external: Float[Tensor, "e 1"], world: SwarmWorld) -> Float[Tensor, "2 m"]:
    """Axes [m] of all cylinders of one episode."""
    wide, deep = grid(world)
    bits = external[_BITS, 0].long().unsqueeze(1) >> torch.arange(wide) & 1
    row, column = bits.nonzero(as_tuple=True)
    return torch.stack([column + 0.5 - wide / 2, row + 0.5 - deep / 2]) * CELL_M


class _Deal:
    """Uniform numbers handed out as they are asked for: worlds first, as sim/tasks/swarm/scenarios.py wants
    them.
    """

    def __init__(self, unit: Float[Tensor, "u n"]) -> None:
        self.unit, self.used = unit, 0

    def __call__(self, *shape: int) -> Tensor:
        rows = math.prod(shape[1:])
        self.used += rows
        return self.unit[self.used - rows : self.used].T.reshape(shape)


def _at_the_wall(point: Float[Tensor, "3 n"], side: float, world: SwarmWorld) -> Tensor:
    """The same y and height in the outermost cells on one side, where no cylinder stands."""
    wide, _ = grid(world)
    return torch.cat([torch.full_like(point[:1], side * (wide - 1) / 2 * CELL_M), point[1:]])


def _long(bent: Float[Tensor, "3 n"], reach_m: float) -> Tensor:
    """The inverse of `short`."""
    return bent * torch.rsqrt((1.0 - bent.square().sum(0, keepdim=True) / reach_m**2).clamp(min=1e-6))


def _rows(vector: Tensor) -> Vec:
    x, y, z = vector.unbind(0)
    return x, y, z


def _flat(vector: Tensor) -> tuple[Tensor, Tensor]:
    x, y = vector.unbind(0)
    return x, y
