"""Hover: reach the origin from a random start and hold it against a constant disturbance.

Randomisation: start position, attitude, velocity and rates, with a tenth of the starts at the goal, level and
at rest; a constant force and torque. These, the box and the sensor noise are those of Learning to Fly in
Seconds (Eschmann et al. 2024, its released code), so that results can be compared. Success: the drone never
leaves the box, and its mean distance from the goal over the last 2 s is below 10 cm. Reward: alive
exp(-cost / alive); the cost weighs distance, velocity, rates, attitude, effort and nearness to the box.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from robo_rl.core.shapes import Bool, Float
from sim.engines.quad.craft import GRAVITY_M_S2, Craft
from sim.engines.quad.layout import EXTERNAL_SIZE, FORCE, POS, QUAT, RATE, ROTOR, STATE_SIZE, TORQUE, VEL
from sim.tasks.flight.protocol import FlightOutcome, FlightStep, FlightTransition, Score

START_NUMBERS = 19  # uniform numbers that describe the start of an episode


@dataclass(frozen=True, slots=True)
class HoverTask:
    """Reach and hold the origin. Positions are relative to the goal, which the caller subtracts."""

    box_m: float = 0.6  # an episode ends where any coordinate leaves +- this
    start_m: float = 0.2  # half-widths of the random start: position per axis, ...
    start_tilt_rad: float = 1.5707963  # ... largest angle to level, ...
    start_speed_m_s: float = 1.0  # ... velocity per axis, ...
    start_rate_rad_s: float = 1.0  # ... body rate per axis
    start_rotor: float = 0.5  # fraction of full speed
    at_goal: float = 0.1  # share of episodes that start at the goal, at rest
    force_std: float = 0.05  # constant disturbance of an episode, as a fraction of the weight
    torque_std: float = 1e-4  # ... as a fraction of the weight times one metre
    max_steps: int = 500
    train_box_m: float = 1.0  # box of training flights: larger, so that returning can be learned
    train_steps: int = 300
    hold_radius_m: float = 0.1  # success: the error is below this
    hold_s: float = 2.0  # the error is measured over these last seconds of an episode
    dt_s: float = 0.01
    alive: float = 2.0  # reward of a step without cost
    # Weights of the cost.
    w_position: float = 5.0
    w_velocity: float = 0.1
    w_rate: float = 0.005
    w_tilt: float = 0.5
    w_yaw: float = 0.3
    w_action: float = 0.02
    w_action_rate: float = 0.2  # halves the chatter of the motors without loss of accuracy: docs/racing.md
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
    def floor_m(self) -> float | None:
        return None

    @property
    def power(self) -> int:
        """Exponent of the power mean over distances that gives the error: 1 mean, 2 root mean square."""
        return 1

    @property
    def hold_steps(self) -> int:
        """Number of last steps of an episode over which the error is measured."""
        return min(self.max_steps, round(self.hold_s / self.dt_s))

    def first(self, external: Tensor) -> Tensor:
        return external[:0]

    def advance(self, before: Tensor, after: Tensor, external: Tensor, task_state: Tensor) -> Tensor:
        return task_state

    def relative(self, state: Tensor, external: Tensor, task_state: Tensor) -> Tensor:
        """The state relative to the goal."""
        return state

    def view(self, seen: Tensor, external: Tensor, task_state: Tensor) -> tuple[Tensor, Tensor]:
        """The sensors' measurements, unchanged."""
        return seen, seen[:0]

    def measured(self, obs: Tensor, state: Tensor, external: Tensor, task_state: Tensor) -> Tensor:
        """The state with position, velocity and rates as measured; the attitude is the true one."""
        goal = self.reference(external, task_state)
        seen = state.clone()
        seen[POS], seen[VEL], seen[RATE] = obs[0:3] + goal[0:3], obs[12:15] + goal[3:6], obs[15:18]
        return seen

    def reference(self, external: Tensor, task_state: Tensor) -> Float[Tensor, "10 n"]:
        """Position [m], velocity [m/s], acceleration [m/s^2] and yaw [rad] of the goal: all 0."""
        return external.new_zeros(10, external.shape[1])

    def start(
        self, craft: Craft, uniform: Float[Tensor, "19 n"]
    ) -> tuple[Float[Tensor, "17 n"], Float[Tensor, "9 n"]]:
        """Start states and the disturbances of their episodes, from uniform numbers in (0, 1)."""
        num, both = uniform.shape[1], 2.0 * uniform - 1.0
        state = uniform.new_empty(STATE_SIZE, num)
        state[POS] = both[0:3] * self.start_m
        state[QUAT] = tilted(uniform[3:6], self.start_tilt_rad)
        state[VEL], state[RATE] = both[6:9] * self.start_speed_m_s, both[9:12] * self.start_rate_rad_s
        state[ROTOR] = self.start_rotor
        rest = uniform.new_zeros(STATE_SIZE, 1)
        rest[3], rest[ROTOR] = 1.0, craft.hover_speed
        weight_n = craft.mass_kg * GRAVITY_M_S2
        normal = math.sqrt(2.0) * torch.erfinv(both[12:18])
        external = uniform.new_zeros(EXTERNAL_SIZE, num)
        external[FORCE] = normal[0:3] * (self.force_std * weight_n)
        external[TORQUE] = normal[3:6] * (self.torque_std * weight_n)
        return torch.where(uniform[18] < self.at_goal, rest, state), external

    def terms(
        self, state: Float[Tensor, "17 n"], action: Float[Tensor, "4 n"], hover: Sequence[float | Tensor]
    ) -> dict[str, Tensor]:
        """Cost terms by name, each (n,). state: relative to the goal; hover: the action that hovers."""
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
        """Sum of the terms, and of the change of the action where the previous one is known."""
        seen = self.relative(transition.after, transition.external, transition.task_state)
        total = sum(self.terms(seen, transition.action, transition.hover).values(), torch.zeros_like(seen[0]))
        if transition.last is None:
            return total
        return total + self.w_action_rate * (transition.action - transition.last).square().sum(0)

    def reward(self, cost: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
        """alive exp(-cost / alive): about alive - cost near the goal, positive everywhere.

        With alive - cost everywhere, a step 0.4 m from the goal or farther would be worth less than the zero
        after the end of a flight, and a policy that maximises reward would learn to leave the box.
        """
        return self.alive * torch.exp(-cost / self.alive)

    def over(self, transition: FlightTransition) -> tuple[Bool[Tensor, " n"], Bool[Tensor, " n"]]:
        """Masks of drones outside the box, and outside the wider box of training."""
        seen = self.relative(transition.after, transition.external, transition.task_state)
        return self.outside(seen, self.box_m), self.outside(seen, self.train_box_m)

    def score(self, flown: FlightOutcome) -> Score:
        """Success: the drone stayed in the box, and its error is below the hold radius."""
        error, ended = self.hold_error(flown.offset_m, flown.left)
        held = ~ended
        held[held.clone()] = error < self.hold_radius_m
        return Score(error, ended, held)

    def hold_error(
        self, position_m: Float[Tensor, "t 3 n"], left: Bool[Tensor, "t n"]
    ) -> tuple[Float[Tensor, " k"], Bool[Tensor, " n"]]:
        """Returns (error [m] over the last `hold_s` of the k drones that stayed, mask of those that left)."""
        ended = left.any(0)
        far_m = position_m[-self.hold_steps :].norm(dim=1)
        return far_m.pow(self.power).mean(0).pow(1.0 / self.power)[~ended], ended

    def tally(self, tally: Float[Tensor, " n"], flying: FlightStep) -> Float[Tensor, " n"]:
        """Sum of distance^power over the last `hold_steps` steps."""
        late = flying.age > self.max_steps - self.hold_steps
        return tally + torch.where(late, flying.offset_m.norm(dim=0).pow(self.power), 0.0)

    def verdict(
        self, tally: Float[Tensor, " n"], flying: FlightStep
    ) -> tuple[Bool[Tensor, " n"], Float[Tensor, " n"] | None]:
        """Success and error [m], known only at the end of an episode: before it False and infinity."""
        stayed = (flying.age >= self.max_steps) & ~flying.left
        error_m = torch.where(stayed, (tally / self.hold_steps).pow(1.0 / self.power), math.inf)
        return error_m < self.hold_radius_m, error_m

    def outside(self, state: Float[Tensor, "17 n"], box_m: float) -> Bool[Tensor, " n"]:
        """Mask of positions beyond `box_m` on any axis."""
        return (state[POS].abs() > box_m).any(0)


def tilted(uniform: Float[Tensor, "3 n"], most_rad: float) -> Float[Tensor, "4 n"]:
    """Quaternions (wxyz, body -> world) uniform over rotations by at most `most_rad` (below pi).

    Uniform rotations have angles of density 1 - cos(angle), so the angle a for a uniform number u solves
    a - sin a = u (m - sin m), m = `most_rad`; Newton's method from the cube root converges in six steps.
    """
    goal = uniform[0] * (most_rad - math.sin(most_rad))
    angle = (6.0 * goal).pow(1.0 / 3.0)  # a - sin a is a^3 / 6 near 0
    for _ in range(6):
        angle = angle - (angle - angle.sin() - goal) / (1.0 - angle.cos()).clamp(min=1e-6)
    up, around = 2.0 * uniform[1] - 1.0, 2.0 * math.pi * uniform[2]
    flat, half = (1.0 - up * up).clamp(min=0.0).sqrt(), 0.5 * angle
    axis = torch.stack([flat * around.cos(), flat * around.sin(), up])
    return torch.cat([half.cos().unsqueeze(0), axis * half.sin()])
