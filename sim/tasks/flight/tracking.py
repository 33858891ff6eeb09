"""Follow a curve: Lissajous figures of random size, speed and phase in training, a figure-eight to be
measured on.

The same state, observation and cost as holding a point, in the frame that moves with the reference; the
policy also sees where the reference goes next. Score: root mean square of the distance after the first two
seconds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from robo_rl.core.errors import ConfigError
from sim.engines.quad.craft import GRAVITY_M_S2, Craft
from sim.engines.quad.layout import EXTERNAL_SIZE, POS, VEL
from sim.tasks.flight.hover import START_NUMBERS, HoverTask

CURVE_SIZE = 9  # amplitude [m], angular rate [rad/s] and phase [rad] of x, y and z
PREVIEW_S = (0.1, 0.2, 0.3)  # how far ahead the policy sees the reference
_CURVE_NUMBERS = 8  # uniform numbers that describe a random curve
Curve = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class TrackingTask(HoverTask):
    """Follow p_i(t) = A_i sin(w_i t + phase_i). `curve`: one for all episodes; None draws one for each."""

    start_tilt_rad: float = 0.5
    start_speed_m_s: float = 0.5
    force_std: float = 0.02
    at_goal: float = 0.0
    max_steps: int = 1000
    hold_s: float = 8.0
    w_tilt: float = 0.0  # a turn needs tilt
    w_action_rate: float = 0.0
    curve: Curve | None = None
    most_speed_m_s: float = 2.2  # of random curves

    @property
    def name(self) -> str:
        return "figure8"

    @property
    def moves(self) -> bool:
        return True

    @property
    def power(self) -> int:
        """The error is the root mean square of the distance."""
        return 2

    @property
    def scene(self) -> tuple[tuple[float, float, float], float]:
        return (0.0, 0.0, 0.0), 2.0

    @property
    def start_numbers(self) -> int:
        return START_NUMBERS + _CURVE_NUMBERS

    @property
    def task_state_size(self) -> int:
        """The clock [s]."""
        return 1

    @property
    def scales(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        return HoverTask().scales[0], (0.2,) * 3 + (3.0,) * (3 * len(PREVIEW_S))

    @property
    def units(self) -> tuple[str, str]:
        return HoverTask().units[0], "acceleration m/s2 and next positions m of the reference"

    def start(
        self, craft: Craft, unit: Float[Tensor, "27 n"]
    ) -> tuple[Float[Tensor, "17 n"], Float[Tensor, "18 n"]]:
        """Near the start of the curve, at about its velocity; the curve stands below the disturbance."""
        # super() is not found in a dataclass with slots, which is made anew
        state, external = HoverTask.start(self, craft, unit[:START_NUMBERS])
        if self.curve is None:
            curve = random_curve(unit[START_NUMBERS:], self.most_speed_m_s)
        else:
            curve = torch.tensor(self.curve).unsqueeze(1).expand(-1, unit.shape[1])
        position, velocity, _ = curve_at(curve, torch.zeros(unit.shape[1]))
        state[POS], state[VEL] = state[POS] + position, state[VEL] + velocity
        return state, torch.cat([external, curve])

    def first(self, external: Tensor) -> Tensor:
        return torch.zeros_like(external[:1])

    def advance(self, before: Tensor, after: Tensor, external: Tensor, task_state: Tensor) -> Tensor:
        return task_state + self.dt_s

    def relative(self, state: Tensor, external: Tensor, task_state: Tensor) -> Tensor:
        """The state in the frame that moves with the reference."""
        position, velocity, _ = curve_at(external[EXTERNAL_SIZE:], task_state)
        return torch.cat([state[POS] - position, state[3:7], state[VEL] - velocity, state[10:]])

    def view(self, seen: Tensor, external: Tensor, task_state: Tensor) -> tuple[Tensor, Tensor]:
        """Behind the memory: the reference's acceleration, and where it will be, from where it is."""
        curve = external[EXTERNAL_SIZE:]
        position, _, acceleration = curve_at(curve, task_state)
        later = (curve_at(curve, task_state + later_s)[0] - position for later_s in PREVIEW_S)
        return seen, torch.cat([acceleration, *later])

    def reference(self, external: Tensor, task_state: Tensor) -> Float[Tensor, "10 n"]:
        """Position, velocity, acceleration and yaw, as classical controllers take it."""
        curve = external[EXTERNAL_SIZE:]
        return torch.cat([*curve_at(curve, task_state), torch.zeros_like(curve[:1])])


def curve_at(curve: Float[Tensor, "9 #n"], time_s: Float[Tensor, "*one #n"]) -> tuple[Tensor, Tensor, Tensor]:
    """Position, velocity and acceleration (3, n) of the reference."""
    size, rate, phase = curve[0:3], curve[3:6], curve[6:9]
    angle = rate * time_s + phase
    position = size * angle.sin()
    return position, size * rate * angle.cos(), -rate * rate * position


def random_curve(unit: Float[Tensor, "8 n"], most_speed_m_s: float) -> Float[Tensor, "9 n"]:
    """Lissajous figures 1:1 or 1:2, at most `most_speed_m_s` fast anywhere, accelerating with at most 0.5
    g.
    """
    size = torch.stack([0.3 + 1.2 * unit[0], 0.2 + 0.8 * unit[1], 0.3 * unit[2]])
    one = torch.ones_like(unit[3])
    ratio = torch.stack([one, torch.where(unit[3] < 0.5, one, 2.0 * one), one])
    speed = (0.1 + 0.9 * unit[4]) * most_speed_m_s
    rate = speed / (size * ratio).norm(dim=0)
    rate = torch.minimum(rate, torch.sqrt(0.5 * GRAVITY_M_S2 / (size * ratio.square()).norm(dim=0)))
    return torch.cat([size, rate * ratio, 2.0 * math.pi * unit[5:8]])


def check_speed(craft: Craft, speed_m_s: float, size_m: float = 1.0) -> None:
    """Raises ConfigError, with the bound, for a figure-eight that asks for more than 80 % of the craft's
    thrust.
    """
    spare = math.sqrt(max(0.0, (0.8 * craft.thrust_to_weight) ** 2 - 1.0)) * GRAVITY_M_S2
    most_m_s = math.sqrt(spare * size_m)  # the largest acceleration is about v^2 / A
    if speed_m_s > most_m_s:
        raise ConfigError(
            f"{speed_m_s:g} m/s is faster than craft '{craft.name}' can fly a figure-eight of {size_m:g} m: "
            f"with a thrust of {craft.thrust_to_weight:.2f} times its weight, at most {most_m_s:.1f} m/s. "
            "Lower speed_m_s."
        )


def figure_eight(speed_m_s: float = 2.0, size_m: float = 1.0) -> Curve:
    """x = A sin(w t), y = A / 2 sin(2 w t): fastest where it crosses itself, sqrt(2) A w.

    Raises ConfigError for a speed or a size that is not positive.
    """
    if not (speed_m_s > 0.0 and size_m > 0.0):
        raise ConfigError(
            f"A figure-eight needs a speed and a size above 0, found {speed_m_s:g} m/s and {size_m:g} m."
        )
    rate = speed_m_s / (math.sqrt(2.0) * size_m)
    return (size_m, 0.5 * size_m, 0.0, rate, 2.0 * rate, 0.0, 0.0, 0.0, 0.0)
