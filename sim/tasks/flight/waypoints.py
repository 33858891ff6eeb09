"""Fly through random points one after the other, each reached within a radius, and stop at the last.

Seen: the current and the next point, in body axes. The cost of a step is the distance that is left and the
progress that is missing towards the current point, plus handling; it has no term for the switch, whose
gradient is zero.
"""

from __future__ import annotations

from dataclasses import dataclass

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
    norm,
    pay,
    pick,
    upright,
)
from sim.tasks.flight.protocol import FlightOutcome, FlightStep, FlightTransition, Score

ROOM = Room((-2.0, -2.0, 0.0), (2.0, 2.0, 2.5))
INNER = Room((-1.4, -1.4, 0.6), (1.4, 1.4, 1.9))  # where the points are


@dataclass(frozen=True, slots=True)
class WaypointTask:
    """`count` points, each `step_m` from the one before, folded back at the walls of `inner`."""

    count: int = 10
    radius_m: float = 0.15
    train_radius_m: float = (
        0.09  # smaller, so that a policy that comes to rest at its rim is within the measured one
    )
    step_m: tuple[float, float] = (0.6, 1.6)
    room: Room = ROOM
    inner: Room = INNER
    start_anywhere: bool = False  # training: an episode may begin at any of its points
    start_tilt_rad: float = 0.5
    start_speed_m_s: float = 0.5
    start_rate_rad_s: float = 1.0
    force_std: float = 0.02
    torque_std: float = 1e-4
    max_steps: int = 2000
    train_steps: int = 400
    dt_s: float = 0.01
    most_speed_m_s: float = 2.0
    w_alive: float = 5.0  # what a step is worth, so that ending a flight early is never cheap
    w_progress: float = 1.0
    w_distance: float = 2.0
    w_stop: float = 0.1
    w_rate: float = 0.005
    w_action: float = 0.02
    w_action_rate: float = 0.1
    w_speed: float = 1.0
    w_edge: float = 20.0

    @property
    def name(self) -> str:
        return "waypoints"

    @property
    def moves(self) -> bool:
        return True

    @property
    def scene(self) -> tuple[tuple[float, float, float], float]:
        return self.room.scene

    @property
    def start_numbers(self) -> int:
        return ATTITUDE_NUMBERS + 4 + 3 * self.count

    @property
    def task_state_size(self) -> int:
        """Rows of the task: the count of reached points."""
        return 1

    @property
    def scales(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        return FRONT_SCALES, (1.0,) * 3

    @property
    def units(self) -> tuple[str, str]:
        return FRONT_UNITS, "next waypoint m"

    def start(
        self, craft: Craft, unit: Float[Tensor, "u n"]
    ) -> tuple[Float[Tensor, "17 n"], Float[Tensor, "e n"]]:
        """Anywhere in the inner room; below the disturbance the points, and how many count as reached
        already.
        """
        both = 2.0 * unit[12:15] - 1.0
        low, high = (torch.tensor(x).unsqueeze(1) for x in (self.inner.low_m, self.inner.high_m))
        position = low + (high - low) * unit[15:18]
        points = random_points(unit[19:], position, self)
        state = upright(
            position,
            both * self.start_speed_m_s,
            unit[0:6],
            self.start_tilt_rad,
            self.start_rate_rad_s,
            craft.hover_speed,
        )
        reached = (unit[18:19] * self.count).floor() if self.start_anywhere else torch.zeros_like(unit[:1])
        return state, torch.cat(
            [disturbance(craft, unit[6:12], self.force_std, self.torque_std), points, reached]
        )

    def first(self, external: Tensor) -> Tensor:
        return external[-1:]

    def target(self, external: Tensor, task_state: Tensor, later: int = 0) -> Float[Tensor, "3 n"]:
        """The point to fly to, or one that comes later; the last one when all have been reached."""
        return pick(external[EXTERNAL_SIZE:-1], (task_state[0] + later).clamp(max=self.count - 1), 3)

    def advance(self, before: Tensor, after: Tensor, external: Tensor, task_state: Tensor) -> Tensor:
        reached = (after[POS] - self.target(external, task_state)).square().sum(
            0, keepdim=True
        ) < self.radius_m**2
        return (task_state + reached.to(task_state.dtype)).clamp(max=self.count)

    def relative(self, state: Tensor, external: Tensor, task_state: Tensor) -> Tensor:
        return torch.cat([state[POS] - self.target(external, task_state), state[3:]])

    def view(self, seen: Tensor, external: Tensor, task_state: Tensor) -> tuple[Tensor, Tensor]:
        """In body axes; the next point is as far from the craft as the current one and the way from that to
        it.
        """
        following = self.target(external, task_state, 1) - self.target(external, task_state)
        return body_front(seen), in_body(seen, following - seen[0:3])

    def measured(self, obs: Tensor, state: Tensor, external: Tensor, task_state: Tensor) -> Tensor:
        return from_body_front(obs, state, self.target(external, task_state))

    def reference(self, external: Tensor, task_state: Tensor) -> Float[Tensor, "10 n"]:
        """The current point, to be reached and held: controllers switch by the same rule as the policy."""
        target = self.target(external, task_state)
        return torch.cat([target, torch.zeros(7, target.shape[1])])

    def terms(self, transition: FlightTransition) -> dict[str, Tensor]:
        """Cost terms by name, each (n,). Progress is towards the point that was aimed at when the step
        began.
        """
        target = self.target(transition.external, transition.task_state_before)
        near, far = norm(transition.after[POS] - target), norm(transition.before[POS] - target)
        stopping = (transition.task_state_before[0] >= self.count - 1).to(near.dtype)
        return {
            "alive": torch.full_like(transition.after[0], -self.w_alive),
            "progress": self.w_progress * (near - far) / self.dt_s,
            "distance": self.w_distance * near,
            "stop": self.w_stop * stopping * transition.after[VEL].square().sum(0),
            "edge": self.w_edge * self.room.edge(transition.after[POS], 0.6),
            **handling_terms(
                transition, self.w_rate, self.w_action, self.w_action_rate, self.w_speed, self.most_speed_m_s
            ),
        }

    def cost(self, transition: FlightTransition) -> Float[Tensor, " n"]:
        return sum(self.terms(transition).values(), torch.zeros_like(transition.after[0]))

    def reward(self, cost: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
        """Reward of a step by `pay`: the cost already contains the value of staying in flight."""
        return pay(cost, self.w_alive)

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
            "mean_speed_m_s": float(speed.mean()) if len(speed) else None,
            "max_speed_m_s": float(speed.max()) if len(speed) else None,
        }
        return Score(torch.zeros(0), flown.left.any(0), done, facts)

    def tally(self, tally: Float[Tensor, " n"], flying: FlightStep) -> Float[Tensor, " n"]:
        """1 once all points have been reached."""
        done = (flying.task_state[0] >= self.count) & ~flying.left
        return torch.maximum(tally, done.to(tally.dtype))

    def verdict(
        self, tally: Float[Tensor, " n"], flying: FlightStep
    ) -> tuple[Bool[Tensor, " n"], Float[Tensor, " n"] | None]:
        """Verdict of a step; events after the last gate or point do not change it."""
        return tally > 0.0, None


def random_points(unit: Float[Tensor, "u n"], start_m: Float[Tensor, "3 n"], task: WaypointTask) -> Tensor:
    """(3 count, n): from each to the next in a direction even over the sphere, folded back at the walls of
    `inner`.
    """
    low, high = (torch.tensor(x).unsqueeze(1) for x in (task.inner.low_m, task.inner.high_m))
    nearest, furthest = task.step_m
    points, at = [], start_m
    for k in range(task.count):
        up, around, far = unit[3 * k : 3 * k + 3]
        z, turn = 2.0 * up - 1.0, 6.283185307 * around
        flat = (1.0 - z * z).clamp(min=0.0).sqrt()
        way = torch.stack([flat * turn.cos(), flat * turn.sin(), z])
        at = fold(at + way * (nearest + (furthest - nearest) * far), low, high)
        points.append(at)
    return torch.cat(points)


def fold(x: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """Reflected at both bounds until it lies between them."""
    span = high - low
    return high - (torch.remainder(x - low, 2.0 * span) - span).abs()


def check_waypoint_speed(craft: Craft, speed_m_s: float, task: WaypointTask) -> None:
    """Raises ConfigError, with the bound, for a speed from which the craft cannot stop inside the room."""
    push = (max(0.0, (0.9 * craft.thrust_to_weight) ** 2 - 1.0)) ** 0.5 * 9.81
    length_m = max(high - low for low, high in zip(task.room.low_m, task.room.high_m, strict=True))
    most = (push * length_m) ** 0.5
    if not 0.0 < speed_m_s <= most:
        raise ConfigError(
            f"speed_m_s = {speed_m_s:g} is impossible for craft '{craft.name}' in a room of {length_m:g} m: "
            f"above 0 and at most {most:.1f} m/s, from which it can just stop. Change speed_m_s."
        )
