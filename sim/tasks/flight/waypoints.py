"""Waypoints: fly through random points in order, each reached within a radius, and stop at the last one.

Randomisation: start position, velocity, attitude and rates; the points; a constant force and torque. The
policy observes the current and the next point in body axes. Success: all points reached in time, without
leaving the room. Reward: progress towards the current point, minus its distance, handling costs and the
distance to walls. Reaching a point has no term of its own, because its gradient is zero almost everywhere.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

import torch
from torch import Tensor

from robo_rl.core.errors import ConfigError
from robo_rl.core.shapes import Bool, Float
from sim.engines.quad.craft import Craft
from sim.engines.quad.layout import EXTERNAL_SIZE, POS, VEL, constants
from sim.tasks.flight.course import (
    ATTITUDE_NUMBERS,
    BODY_SCALES,
    BODY_UNITS,
    CourseTask,
    Room,
    body_obs,
    horizontal_acceleration_m_s2,
    norm,
    select_group,
    speed_facts,
    state_from_body_obs,
    world_to_body,
)
from sim.tasks.flight.protocol import FlightOutcome, FlightStep, FlightTransition, Score

ROOM = Room((-2.0, -2.0, 0.0), (2.0, 2.0, 2.5))
INNER = Room((-1.4, -1.4, 0.6), (1.4, 1.4, 1.9))  # box that holds the points


@dataclass(frozen=True, slots=True)
class WaypointTask(CourseTask):
    """`count` points, each `step_m` (least, most) from the previous one, reflected into `inner`."""

    count: int = 10
    radius_m: float = 0.15
    # Smaller than radius_m: a policy that stops at the edge of this radius is still within the measured one.
    train_radius_m: float = 0.09
    step_m: tuple[float, float] = (0.6, 1.6)
    room: Room = ROOM
    inner: Room = INNER
    start_anywhere: bool = False  # training: an episode may begin at any of its points
    start_speed_m_s: float = 0.5
    max_steps: int = 2000
    train_steps: int = 400
    most_speed_m_s: float = 2.0
    w_progress: float = 1.0
    w_distance: float = 2.0
    w_stop: float = 0.1
    w_edge: float = 20.0
    _: KW_ONLY
    start_tilt_rad: float = 0.5
    start_rate_rad_s: float = 1.0

    @property
    def name(self) -> str:
        return "waypoints"

    @property
    def speed_limit_m_s(self) -> float:
        return self.most_speed_m_s

    @property
    def scene(self) -> tuple[tuple[float, float, float], float]:
        return self.room.scene

    @property
    def floor_m(self) -> float:
        return self.room.low_m[2]

    @property
    def start_numbers(self) -> int:
        return ATTITUDE_NUMBERS + 4 + 3 * self.count

    @property
    def task_state_size(self) -> int:
        """1: the number of reached points."""
        return 1

    @property
    def scales(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        return BODY_SCALES, (1.0,) * 3

    @property
    def units(self) -> tuple[str, str]:
        return BODY_UNITS, "next waypoint m"

    def start(
        self, craft: Craft, uniform: Float[Tensor, "u n"]
    ) -> tuple[Float[Tensor, "17 n"], Float[Tensor, "e n"]]:
        """Start anywhere in the inner room; the disturbance, the points, and the number already reached."""
        both = 2.0 * uniform[12:15] - 1.0
        low, high = (constants(x, uniform) for x in (self.inner.low_m, self.inner.high_m))
        position = low + (high - low) * uniform[15:18]
        points = random_points(uniform[19:], position, self)
        state, pushed = self.start_with(craft, uniform, position, both * self.start_speed_m_s)
        none = torch.zeros_like(uniform[:1])
        reached = (uniform[18:19] * self.count).floor() if self.start_anywhere else none
        return state, torch.cat([pushed, points, reached])

    def first(self, external: Tensor) -> Tensor:
        return external[-1:]

    def target(self, external: Tensor, task_state: Tensor, later: int = 0) -> Float[Tensor, "3 n"]:
        """Current point [m, world], or the one `later` points after it; the last once all are reached."""
        return select_group(external[EXTERNAL_SIZE:-1], (task_state[0] + later).clamp(max=self.count - 1), 3)

    def advance(self, before: Tensor, after: Tensor, external: Tensor, task_state: Tensor) -> Tensor:
        reached = (after[POS] - self.target(external, task_state)).square().sum(
            0, keepdim=True
        ) < self.radius_m**2
        return (task_state + reached.to(task_state.dtype)).clamp(max=self.count)

    def relative(self, state: Tensor, external: Tensor, task_state: Tensor) -> Tensor:
        return torch.cat([state[POS] - self.target(external, task_state), state[3:]])

    def view(self, seen: Tensor, external: Tensor, task_state: Tensor) -> tuple[Tensor, Tensor]:
        """Observations in body axes, and behind the memory the next point relative to the craft [m]."""
        following = self.target(external, task_state, 1) - self.target(external, task_state)
        return body_obs(seen), world_to_body(seen, following - seen[0:3])

    def measured(self, obs: Tensor, state: Tensor, external: Tensor, task_state: Tensor) -> Tensor:
        return state_from_body_obs(obs, state, self.target(external, task_state))

    def reference(self, external: Tensor, task_state: Tensor) -> Float[Tensor, "10 n"]:
        """The current point, at rest: controllers switch to the next one by the same rule as the policy."""
        target = self.target(external, task_state)
        return torch.cat([target, target.new_zeros(7, target.shape[1])])

    def course_terms(self, transition: FlightTransition) -> dict[str, Tensor]:
        """Progress is measured towards the point that was the target when the step began."""
        target = self.target(transition.external, transition.task_state_before)
        near, far = norm(transition.after[POS] - target), norm(transition.before[POS] - target)
        stopping = (transition.task_state_before[0] >= self.count - 1).to(near.dtype)
        return {
            "progress": self.w_progress * (near - far) / self.dt_s,
            "distance": self.w_distance * near,
            "stop": self.w_stop * stopping * transition.after[VEL].square().sum(0),
            "edge": self.w_edge * self.room.edge(transition.after[POS], 0.6),
        }

    def over(self, transition: FlightTransition) -> tuple[Bool[Tensor, " n"], Bool[Tensor, " n"]]:
        left = self.room.outside(transition.after[POS])
        return left, left

    def score(self, flown: FlightOutcome) -> Score:
        """Success: all points reached, in time and without leaving the room."""
        reached = flown.task_state[:, 0].masked_fill(flown.left, 0.0)
        done = (reached >= self.count).any(0)
        flying = ~flown.left & (reached < self.count)
        steps = flying.sum(0).to(torch.float32)[done]
        speed = flown.velocity_m_s.norm(dim=1)[flying]
        facts = {
            "completed": float(done.float().mean()),
            "time_per_waypoint_s": float(steps.mean() * self.dt_s / self.count) if len(steps) else None,
            **speed_facts(speed),
        }
        return Score(torch.zeros(0), flown.left.any(0), done, facts)

    def tally(self, tally: Float[Tensor, " n"], flying: FlightStep) -> Float[Tensor, " n"]:
        """1 once all points have been reached."""
        done = (flying.task_state[0] >= self.count) & ~flying.left
        return torch.maximum(tally, done.to(tally.dtype))

    def verdict(
        self, tally: Float[Tensor, " n"], flying: FlightStep
    ) -> tuple[Bool[Tensor, " n"], Float[Tensor, " n"] | None]:
        """Success once all points have been reached, whatever happens afterwards; no error."""
        return tally > 0.0, None


def random_points(uniform: Float[Tensor, "u n"], start_m: Float[Tensor, "3 n"], task: WaypointTask) -> Tensor:
    """(3 count, n) points [m, world], each in a direction uniform over the sphere from the previous one.

    A point beyond a wall of `inner` is reflected at it.
    """
    low, high = (constants(x, uniform) for x in (task.inner.low_m, task.inner.high_m))
    nearest, furthest = task.step_m
    points, at = [], start_m
    for k in range(task.count):
        up, around, far = uniform[3 * k : 3 * k + 3]
        z, turn = 2.0 * up - 1.0, 6.283185307 * around
        flat = (1.0 - z * z).clamp(min=0.0).sqrt()
        way = torch.stack([flat * turn.cos(), flat * turn.sin(), z])
        at = fold(at + way * (nearest + (furthest - nearest) * far), low, high)
        points.append(at)
    return torch.cat(points)


def fold(x: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """Reflect at both bounds until the value lies between them."""
    span = high - low
    return high - (torch.remainder(x - low, 2.0 * span) - span).abs()


def check_waypoint_speed(craft: Craft, speed_m_s: float, task: WaypointTask) -> None:
    """Raise ConfigError, with the bound, for a speed from which the craft cannot stop inside the room."""
    length_m = 2.0 * task.room.scene[1]
    most = (horizontal_acceleration_m_s2(craft, 0.9) * length_m) ** 0.5
    if not 0.0 < speed_m_s <= most:
        raise ConfigError(
            f"speed_m_s = {speed_m_s:g} is impossible for craft '{craft.name}' in a room of {length_m:g} m: "
            f"above 0 and at most {most:.1f} m/s, from which it can just stop. Change speed_m_s."
        )
