"""Parts that the tasks from place to place share: the room, start states, observations in body axes, cost
terms.

Observations in body axes do not depend on where the craft is or which way it has turned, so a policy that has
learned to fly at one place flies at all others, and no cost has to hold the yaw.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from robo_rl.core.shapes import Bool, Float
from sim.engines.quad.craft import GRAVITY_M_S2, Craft
from sim.engines.quad.layout import (
    EXTERNAL_SIZE,
    FORCE,
    POS,
    QUAT,
    RATE,
    ROTOR,
    STATE_SIZE,
    TORQUE,
    VEL,
    rotation_matrix,
)
from sim.tasks.flight.hover import tilted
from sim.tasks.flight.protocol import FlightTransition

Vec3 = tuple[float, float, float]
BODY_SCALES = (1.0,) * 3 + (1.0,) * 3 + (0.5,) * 3 + (0.2,) * 3
BODY_UNITS = "goal m, up 1, velocity m/s, rates rad/s, all in body axes"
ATTITUDE_NUMBERS = 15  # uniform numbers of attitude and rates (6), disturbance (6) and velocity (3)


@dataclass(frozen=True, slots=True)
class Room:
    """Box in which the craft may fly [m, world]; z = 0 is the floor."""

    low_m: Vec3
    high_m: Vec3

    @property
    def scene(self) -> tuple[Vec3, float]:
        """Middle of the room [m, world] and half of its longest side [m]."""
        x, y, z = ((low + high) / 2.0 for low, high in zip(self.low_m, self.high_m, strict=True))
        return (x, y, z), max((high - low) / 2.0 for low, high in zip(self.low_m, self.high_m, strict=True))

    def outside(self, position_m: Float[Tensor, "3 n"]) -> Bool[Tensor, " n"]:
        """Mask of positions [m, world] beyond a wall, the floor or the ceiling."""
        axes = zip(position_m.unbind(0), self.low_m, self.high_m, strict=True)
        beyond = [(p < low) | (p > high) for p, low, high in axes]
        return beyond[0] | beyond[1] | beyond[2]

    def edge(self, position_m: Float[Tensor, "3 n"], margin_m: float) -> Float[Tensor, " n"]:
        """Barrier cost: the sum over walls of (1 - distance / margin_m)^2 within the margin, 0 beyond it."""
        total = torch.zeros_like(position_m[0])
        for p, low, high in zip(position_m.unbind(0), self.low_m, self.high_m, strict=True):
            total = total + torch.relu(1.0 - (p - low) / margin_m).square()
            total = total + torch.relu(1.0 - (high - p) / margin_m).square()
        return total


def start_state(
    position_m: Float[Tensor, "3 n"], velocity_m_s: Float[Tensor, "3 n"], uniform: Float[Tensor, "6 n"],
    tilt_rad: float, rate_rad_s: float, rotor: float,
) -> Float[Tensor, "17 n"]:  # fmt: skip
    """Start states at these positions and velocities [m, m/s; world], from uniform numbers in (0, 1).

    The attitude is tilted by at most `tilt_rad`, each body rate is at most `rate_rad_s`; `rotor` is the speed
    of all rotors as a fraction of the maximum.
    """
    state = position_m.new_empty(STATE_SIZE, position_m.shape[1])
    state[POS], state[VEL], state[ROTOR] = position_m, velocity_m_s, rotor
    state[QUAT] = tilted(uniform[0:3], tilt_rad)
    state[RATE] = (2.0 * uniform[3:6] - 1.0) * rate_rad_s
    return state


def disturbance(
    craft: Craft, uniform: Float[Tensor, "6 n"], force_std: float, torque_std: float
) -> Float[Tensor, "9 n"]:
    """Constant disturbance of an episode: normally distributed force [N, world] and torque [N m, body].

    `force_std` is a fraction of the weight, `torque_std` a fraction of the weight times one metre.
    """
    weight_n = craft.mass_kg * GRAVITY_M_S2
    normal = math.sqrt(2.0) * torch.erfinv(2.0 * uniform - 1.0)
    external = uniform.new_zeros(EXTERNAL_SIZE, uniform.shape[1])
    external[FORCE] = normal[0:3] * (force_std * weight_n)
    external[TORQUE] = normal[3:6] * (torque_std * weight_n)
    return external


def select_group(
    groups: Float[Tensor, "kw n"], index: Float[Tensor, " n"], width: int
) -> Float[Tensor, "w n"]:
    """Group number `index` of each drone, out of k groups of `width` components; group 0 for any other
    number.

    A chain of selections stays in one compiled loop over drones; a gather would not.
    """
    chosen = groups[:width]
    for k in range(1, len(groups) // width):
        chosen = torch.where(index == k, groups[k * width : (k + 1) * width], chosen)
    return chosen


def world_to_body(seen: Float[Tensor, "18 n"], world: Float[Tensor, "3 n"]) -> Float[Tensor, "3 n"]:
    """R^T v: a vector of the world in body axes, by the measured rotation matrix (`flight.observe`)."""
    r, (x, y, z) = seen[3:12], world.unbind(0)
    return torch.stack([r[i] * x + r[3 + i] * y + r[6 + i] * z for i in range(3)])


def body_obs(seen: Float[Tensor, "18 n"]) -> Float[Tensor, "12 n"]:
    """Goal relative to the craft [m], world z axis, velocity [m/s] and rates [rad/s], all in body axes."""
    return torch.cat(
        [world_to_body(seen, -seen[0:3]), seen[9:12], world_to_body(seen, seen[12:15]), seen[15:18]]
    )


def state_from_body_obs(
    obs: Float[Tensor, "o n"], state: Float[Tensor, "17 n"], goal_m: Float[Tensor, "3 n"]
) -> Float[Tensor, "17 n"]:
    """The state with position, velocity and rates taken from an observation of `body_obs`; true attitude."""
    r, measured = rotation_matrix(state[QUAT]), state.clone()

    def in_world(v: Tensor) -> Tensor:
        return torch.stack([r[3 * i] * v[0] + r[3 * i + 1] * v[1] + r[3 * i + 2] * v[2] for i in range(3)])

    measured[POS], measured[VEL], measured[RATE] = goal_m - in_world(obs[0:3]), in_world(obs[6:9]), obs[9:12]
    return measured


@dataclass(frozen=True, slots=True, kw_only=True)
class CourseTask(ABC):
    """Start, cost and reward that tasks from place to place share; each task adds its own terms."""

    start_tilt_rad: float = 0.3
    start_rate_rad_s: float = 0.5
    force_std: float = 0.02  # constant disturbance of an episode, as a fraction of the weight
    torque_std: float = 1e-4  # ... as a fraction of the weight times one metre
    dt_s: float = 0.01
    w_alive: float = 5.0  # reward of a step without other costs, so that ending a flight early never pays
    w_rate: float = 0.005
    w_action: float = 0.02
    w_action_rate: float = 0.1
    w_speed: float = 1.0

    @property
    def moves(self) -> bool:
        """True: the goal changes in flight."""
        return True

    @property
    @abstractmethod
    def speed_limit_m_s(self) -> float:
        """Speed above which a step costs more."""

    @abstractmethod
    def course_terms(self, transition: FlightTransition) -> dict[str, Tensor]:
        """Cost terms of this task alone, by name, each (n,)."""

    def terms(self, transition: FlightTransition) -> dict[str, Tensor]:
        """Cost terms by name, each (n,): alive, the task's own, rates, effort, speed, change of action."""
        rates, speed = transition.after[RATE], norm(transition.after[VEL])
        away = [a - h for a, h in zip(transition.action.unbind(0), transition.hover, strict=True)]
        terms = {
            "alive": torch.full_like(transition.after[0], -self.w_alive),
            **self.course_terms(transition),
            "rate": self.w_rate * rates.square().sum(0),
            "action": self.w_action * torch.stack(away).square().sum(0),
            "speed": self.w_speed * torch.relu(speed - self.speed_limit_m_s).square(),
        }
        if transition.last is not None:
            terms["action_rate"] = self.w_action_rate * (transition.action - transition.last).square().sum(0)
        return terms

    def cost(self, transition: FlightTransition) -> Float[Tensor, " n"]:
        """Sum of the cost terms; negative where the value of staying in flight outweighs them."""
        return sum(self.terms(transition).values(), torch.zeros_like(transition.after[0]))

    def reward(self, cost: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
        """Reward of a step by `positive_reward`: the cost already contains the value of staying in flight."""
        return positive_reward(cost, self.w_alive)

    def start_with(
        self, craft: Craft, uniform: Float[Tensor, "u n"], position_m: Tensor, velocity_m_s: Tensor
    ) -> tuple[Float[Tensor, "17 n"], Float[Tensor, "9 n"]]:
        """Start states and disturbances of episodes, from the first 12 of the uniform numbers."""
        tilt, rate, hover = self.start_tilt_rad, self.start_rate_rad_s, craft.hover_speed
        state = start_state(position_m, velocity_m_s, uniform[0:6], tilt, rate, hover)
        return state, disturbance(craft, uniform[6:12], self.force_std, self.torque_std)


def speed_facts(speed_m_s: Float[Tensor, " m"]) -> dict[str, float | None]:
    """Mean and largest of the speeds in flight [m/s]; None where nothing flew."""
    flew = len(speed_m_s) > 0
    return {
        "mean_speed_m_s": float(speed_m_s.mean()) if flew else None,
        "max_speed_m_s": float(speed_m_s.max()) if flew else None,
    }


def horizontal_acceleration_m_s2(craft: Craft, share: float) -> float:
    """g sqrt((share T/W)^2 - 1), largest horizontal acceleration at constant height, share of full thrust."""
    return math.sqrt(max(0.0, (share * craft.thrust_to_weight) ** 2 - 1.0)) * GRAVITY_M_S2


def positive_reward(cost: Float[Tensor, " n"], alive: float) -> Float[Tensor, " n"]:
    """r = -cost where it is above r0 = alive / 5, and r0 exp(r / r0 - 1) below; the cost includes -alive.

    The reward is positive everywhere. Otherwise a step at a wall or far from the goal would be worth less
    than the zero after the end of a flight, and a policy that maximises reward would learn to end it. It is
    linear where flights mostly are: a curved reward of progress would favour flying back and forth. Value and
    slope are continuous at r0.
    """
    least = 0.2 * alive
    return torch.where(cost <= -least, -cost, least * torch.exp((-cost / least - 1.0).clamp(max=0.0)))


def norm(v: Float[Tensor, "3 n"]) -> Float[Tensor, " n"]:
    """Euclidean norm of each drone's vector, smooth at zero."""
    return (v.square().sum(0) + 1e-6).sqrt()
