"""Hold a point: reach the origin from a tumbling start and stay there, whatever pushes.

Start, box, noise and disturbance are those of Learning to Fly in Seconds (Eschmann et al. 2024, its released
code), so that figures can be laid side by side. Scored by pure functions of rows: state (17, n) as in
sim/engines/quad/layout.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from sim.engines.quad.craft import GRAVITY_M_S2, Craft
from sim.engines.quad.layout import EXTERNAL_SIZE, FORCE, POS, QUAT, RATE, ROTOR, STATE_SIZE, TORQUE, VEL
from sim.tasks.flight.protocol import FlightOutcome, FlightStep, FlightTransition, Score

START_NUMBERS = 19  # uniform numbers that describe the start of an episode


@dataclass(frozen=True, slots=True)
class HoverTask:
    """Reach and hold the origin. Positions are relative to it: a goal elsewhere is subtracted by the
    caller.
    """

    box_m: float = 0.6  # an episode ends where any coordinate leaves +- this
    start_m: float = 0.2
    start_tilt_rad: float = 1.5707963
    start_speed_m_s: float = 1.0
    start_rate_rad_s: float = 1.0
    start_rotor: float = 0.5  # fraction of full speed
    at_goal: float = 0.1  # share of episodes that start at the goal, at rest
    force_std: float = 0.05  # constant disturbance of an episode, as a fraction of the weight
    torque_std: float = 1e-4  # ... the same number of weights times one metre
    max_steps: int = 500
    train_box_m: float = 1.0  # training goes on this far, so that coming back can be learned
    train_steps: int = 300
    hold_radius_m: float = 0.1  # held: the mean error over the last seconds is below this
    hold_s: float = 2.0  # the error is measured over the last seconds of an episode
    dt_s: float = 0.01
    alive: float = 2.0  # reward of a step without cost
    # weights of the cost
    w_position: float = 5.0
    w_velocity: float = 0.1
    w_rate: float = 0.005
    w_tilt: float = 0.5
    w_yaw: float = 0.3
    w_action: float = 0.02
    w_action_rate: float = 0.2  # halves the chatter of the motors and costs no accuracy: docs/racing.md
    w_edge: float = 20.0

    @property
    def name(self) -> str:
        return "hover"

    @property
    def moves(self) -> bool:
        """True for a goal that moves with time."""
        return False

    @property
    def start_numbers(self) -> int:
        """Number of uniform numbers that describe the start of an episode."""
        return START_NUMBERS

    @property
    def task_state_size(self) -> int:
        return 0

    @property
    def scales(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        return (5.0,) * 3 + (1.0,) * 12 + (0.5,) * 3, ()

    @property
    def units(self) -> tuple[str, str]:
        return "position m, rotation 1, velocity m/s, rates rad/s", ""

    @property
    def scene(self) -> tuple[tuple[float, float, float], float]:
        return (0.0, 0.0, 0.0), self.box_m

    @property
    def power(self) -> int:
        """Power of the mean that is the error: 1 mean distance, 2 root mean square."""
        return 1

    @property
    def hold_steps(self) -> int:
        """The last steps of an episode, over which the error is measured."""
        return min(self.max_steps, round(self.hold_s / self.dt_s))

    def first(self, external: Tensor) -> Tensor:
        return external[:0]

    def advance(self, before: Tensor, after: Tensor, external: Tensor, task_state: Tensor) -> Tensor:
        return task_state

    def relative(self, state: Tensor, external: Tensor, task_state: Tensor) -> Tensor:
        """The state as seen from the goal."""
        return state

    def view(self, seen: Tensor, external: Tensor, task_state: Tensor) -> tuple[Tensor, Tensor]:
        """The sensors' measurements, unchanged."""
        return seen, seen[:0]

    def measured(self, obs: Tensor, state: Tensor, external: Tensor, task_state: Tensor) -> Tensor:
        """The state with what the sensors say of it; the attitude stays the true one."""
        goal = self.reference(external, task_state)
        seen = state.clone()
        seen[POS], seen[VEL], seen[RATE] = obs[0:3] + goal[0:3], obs[12:15] + goal[3:6], obs[15:18]
        return seen

    def reference(self, external: Tensor, task_state: Tensor) -> Float[Tensor, "10 n"]:
        """Position, velocity, acceleration and yaw of the goal, as classical controllers take it."""
        return torch.zeros(10, external.shape[1])

    def start(
        self, craft: Craft, unit: Float[Tensor, "19 n"]
    ) -> tuple[Float[Tensor, "17 n"], Float[Tensor, "9 n"]]:
        """Start states and the disturbances of their episodes, from uniform numbers in (0, 1)."""
        num, both = unit.shape[1], 2.0 * unit - 1.0
        state = torch.empty(STATE_SIZE, num)
        state[POS] = both[0:3] * self.start_m
        state[QUAT] = tilted(unit[3:6], self.start_tilt_rad)
        state[VEL], state[RATE] = both[6:9] * self.start_speed_m_s, both[9:12] * self.start_rate_rad_s
        state[ROTOR] = self.start_rotor
        rest = torch.zeros(STATE_SIZE, 1)
        rest[3], rest[ROTOR] = 1.0, craft.hover_speed
        weight_n = craft.mass_kg * GRAVITY_M_S2
        normal = math.sqrt(2.0) * torch.erfinv(both[12:18])
        external = torch.zeros(EXTERNAL_SIZE, num)
        external[FORCE] = normal[0:3] * (self.force_std * weight_n)
        external[TORQUE] = normal[3:6] * (self.torque_std * weight_n)
        return torch.where(unit[18] < self.at_goal, rest, state), external

    def terms(
        self, state: Float[Tensor, "17 n"], action: Float[Tensor, "4 n"], hover: Sequence[float | Tensor]
    ) -> dict[str, Tensor]:
        """Cost terms by name, each (n,), smooth enough for gradients; `hover` is the action that hovers."""
        px, py, pz, _, qx, qy, qz, vx, vy, vz, wx, wy, wz, *_ = state.unbind(0)
        distance = torch.sqrt(px * px + py * py + pz * pz + 1e-6)
        edge = sum(
            (torch.relu(p.abs() / self.box_m - 0.7).square() for p in (px, py, pz)), torch.zeros_like(px)
        )
        away = (a - h for a, h in zip(action.unbind(0), hover, strict=True))
        effort = sum((a.square() for a in away), torch.zeros_like(px))
        return {
            "position": self.w_position * distance,
            "velocity": self.w_velocity * (vx * vx + vy * vy + vz * vz),
            "rate": self.w_rate * (wx * wx + wy * wy + wz * wz),
            "tilt": self.w_tilt * 2.0 * (qx * qx + qy * qy),
            "yaw": self.w_yaw * 4.0 * qz * qz,
            "action": self.w_action * effort,
            "edge": self.w_edge * edge,
        }

    def cost(self, transition: FlightTransition) -> Float[Tensor, " n"]:
        seen = self.relative(transition.after, transition.external, transition.task_state)
        total = sum(self.terms(seen, transition.action, transition.hover).values(), torch.zeros_like(seen[0]))
        if transition.last is None:
            return total
        return total + self.w_action_rate * (transition.action - transition.last).square().sum(0)

    def reward(self, cost: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
        """alive exp(-cost / alive): alive - cost near the goal, and above 0 wherever the craft is.

        Were it alive - cost everywhere, a step at 0.4 m from the goal or farther would be worth less than the
        nothing behind the end of a flight, so whoever maximises reward would learn to leave the box.
        """
        return self.alive * torch.exp(-cost / self.alive)

    def over(self, transition: FlightTransition) -> tuple[Bool[Tensor, " n"], Bool[Tensor, " n"]]:
        """Outside the box; outside the wider one of training."""
        seen = self.relative(transition.after, transition.external, transition.task_state)
        return self.outside(seen, self.box_m), self.outside(seen, self.train_box_m)

    def score(self, flown: FlightOutcome) -> Score:
        """Held: stayed, and the error is below the hold radius."""
        error, ended = self.hold_error(flown.offset_m, flown.left)
        held = ~ended
        held[held.clone()] = error < self.hold_radius_m
        return Score(error, ended, held)

    def hold_error(
        self, position_m: Float[Tensor, "t 3 n"], left: Bool[Tensor, "t n"]
    ) -> tuple[Float[Tensor, " k"], Bool[Tensor, " n"]]:
        """(error over the last `hold_s` of those that stayed, which ended early)."""
        ended = left.any(0)
        far_m = position_m[-self.hold_steps :].norm(dim=1)
        return far_m.pow(self.power).mean(0).pow(1.0 / self.power)[~ended], ended

    def tally(self, tally: Float[Tensor, " n"], flying: FlightStep) -> Float[Tensor, " n"]:
        """Sum over the last steps of the distance to the `power`."""
        late = flying.age > self.max_steps - self.hold_steps
        return tally + torch.where(late, flying.offset_m.norm(dim=0).pow(self.power), 0.0)

    def verdict(
        self, tally: Float[Tensor, " n"], flying: FlightStep
    ) -> tuple[Bool[Tensor, " n"], Float[Tensor, " n"] | None]:
        """Known at the end of an episode, not before."""
        stayed = (flying.age >= self.max_steps) & ~flying.left
        error_m = torch.where(stayed, (tally / self.hold_steps).pow(1.0 / self.power), math.inf)
        return error_m < self.hold_radius_m, error_m

    def outside(self, state: Float[Tensor, "17 n"], box_m: float) -> Bool[Tensor, " n"]:
        """Mask of positions beyond `box_m` on any axis."""
        return (state[POS].abs() > box_m).any(0)


def tilted(unit: Float[Tensor, "3 n"], most_rad: float) -> Float[Tensor, "4 n"]:
    """Rotations spread evenly over all whose angle is at most `most_rad` (below pi), wxyz, from uniform
    numbers.

    Even over rotations means that angles have the density 1 - cos(angle), so the angle solves
    a - sin a = u (m - sin m); Newton's method, started at the cube root, is at rest after six steps.
    """
    goal = unit[0] * (most_rad - math.sin(most_rad))
    angle = (6.0 * goal).pow(1.0 / 3.0)  # a - sin a is a^3 / 6 near 0
    for _ in range(6):
        angle = angle - (angle - angle.sin() - goal) / (1.0 - angle.cos()).clamp(min=1e-6)
    up, around = 2.0 * unit[1] - 1.0, 2.0 * math.pi * unit[2]
    flat, half = (1.0 - up * up).clamp(min=0.0).sqrt(), 0.5 * angle
    axis = torch.stack([flat * around.cos(), flat * around.sin(), up])
    return torch.cat([half.cos().unsqueeze(0), axis * half.sin()])
