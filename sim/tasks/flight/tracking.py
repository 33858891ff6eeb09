"""Figure8: track a moving point on random Lissajous figures in training, on a figure-eight in measurement.

Randomisation: the curve's size, speed and phase (training), start position, attitude, velocity and rates near
the reference, a constant force and torque. State, observation, cost and reward are those of hover in the
frame that moves with the reference; the policy also observes the reference's acceleration and next positions.
Success: the drone never leaves the box around the reference, and the root mean square of its distance after
the first 2 s is below 10 cm.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from robo_rl.core.errors import ConfigError
from robo_rl.core.shapes import Float
from sim.engines.quad.craft import GRAVITY_M_S2, Craft
from sim.engines.quad.layout import EXTERNAL_SIZE, POS, VEL, constants
from sim.tasks.flight.course import horizontal_acceleration_m_s2
from sim.tasks.flight.hover import START_NUMBERS, HoverTask

CURVE_SIZE = 9  # amplitude [m], angular rate [rad/s] and phase [rad] of x, y and z
PREVIEW_S = (0.1, 0.2, 0.3)  # times ahead at which the policy observes the reference
_CURVE_NUMBERS = 8  # uniform numbers that describe a random curve
Curve = tuple[float, ...]
_EIGHT = 17.0 / 16.0  # largest acceleration on a figure-eight of speed v and size A, in v^2 / A
_CURVE_M_S2 = 0.5 * GRAVITY_M_S2  # least bound of the acceleration of random curves
_HARDER = 1.15  # factor of that bound over the largest acceleration on the figure-eight


@dataclass(frozen=True, slots=True)
class TrackingTask(HoverTask):
    """Track p_i(t) = A_i sin(w_i t + phase_i). `curve`: the same for all episodes; None: random for each."""

    start_tilt_rad: float = 0.5
    start_speed_m_s: float = 0.5
    force_std: float = 0.02
    at_goal: float = 0.0
    max_steps: int = 1000
    settle_s: float = 2.0  # the error is measured after these first seconds, over the rest of the episode
    w_tilt: float = 0.0  # turning needs tilt, so it costs nothing
    w_action_rate: float = 0.0
    curve: Curve | None = None
    most_speed_m_s: float = 2.2  # of random curves
    most_acceleration_m_s2: float = _CURVE_M_S2  # of random curves

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
    def hold_steps(self) -> int:
        """Number of steps after `settle_s`; all of an episode that is no longer than that."""
        settle = round(self.settle_s / self.dt_s)
        return self.max_steps - settle if self.max_steps > settle else self.max_steps

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
        self, craft: Craft, uniform: Float[Tensor, "27 n"]
    ) -> tuple[Float[Tensor, "17 n"], Float[Tensor, "18 n"]]:
        """Start states near the start of the curve at about its velocity; disturbances, then the curve."""
        # super() does not work here: a dataclass with slots is a new class, unknown to the method.
        state, external = HoverTask.start(self, craft, uniform[:START_NUMBERS])
        if self.curve is None:
            curve = random_curve(uniform[START_NUMBERS:], self.most_speed_m_s, self.most_acceleration_m_s2)
        else:
            curve = constants(self.curve, uniform).expand(-1, uniform.shape[1])
        position, velocity, _ = curve_at(curve, torch.zeros_like(uniform[0]))
        state[POS], state[VEL] = state[POS] + position, state[VEL] + velocity
        return state, torch.cat([external, curve])

    def first(self, external: Tensor) -> Tensor:
        return torch.zeros_like(external[:1])

    def advance(self, before: Tensor, after: Tensor, external: Tensor, task_state: Tensor) -> Tensor:
        return task_state + self.dt_s

    def relative(self, state: Tensor, external: Tensor, task_state: Tensor) -> Tensor:
        """The state in the frame that moves with the reference, in axes of the world."""
        position, velocity, _ = curve_at(external[EXTERNAL_SIZE:], task_state)
        return torch.cat([state[POS] - position, state[3:7], state[VEL] - velocity, state[10:]])

    def view(self, seen: Tensor, external: Tensor, task_state: Tensor) -> tuple[Tensor, Tensor]:
        """Behind the memory the reference's acceleration [m/s^2] and next positions relative to it [m]."""
        curve = external[EXTERNAL_SIZE:]
        position, _, acceleration = curve_at(curve, task_state)
        later = (curve_at(curve, task_state + later_s)[0] - position for later_s in PREVIEW_S)
        return seen, torch.cat([acceleration, *later])

    def reference(self, external: Tensor, task_state: Tensor) -> Float[Tensor, "10 n"]:
        """Position [m], velocity [m/s], acceleration [m/s^2] and yaw [rad] of the moving point."""
        curve = external[EXTERNAL_SIZE:]
        return torch.cat([*curve_at(curve, task_state), torch.zeros_like(curve[:1])])


def curve_at(curve: Float[Tensor, "9 #n"], time_s: Float[Tensor, "*one #n"]) -> tuple[Tensor, Tensor, Tensor]:
    """Position [m], velocity [m/s] and acceleration [m/s^2] of the reference, each (3, n) [world]."""
    size, rate, phase = curve[0:3], curve[3:6], curve[6:9]
    angle = rate * time_s + phase
    position = size * angle.sin()
    return position, size * rate * angle.cos(), -rate * rate * position


def random_curve(
    uniform: Float[Tensor, "8 n"], most_speed_m_s: float, most_acceleration_m_s2: float
) -> Float[Tensor, "9 n"]:
    """Lissajous figures 1:1 or 1:2 within these bounds of speed and acceleration, from uniform numbers."""
    size = torch.stack([0.3 + 1.2 * uniform[0], 0.2 + 0.8 * uniform[1], 0.3 * uniform[2]])
    one = torch.ones_like(uniform[3])
    ratio = torch.stack([one, torch.where(uniform[3] < 0.5, one, 2.0 * one), one])
    speed = (0.1 + 0.9 * uniform[4]) * most_speed_m_s
    rate = speed / (size * ratio).norm(dim=0)
    rate = torch.minimum(rate, torch.sqrt(most_acceleration_m_s2 / (size * ratio.square()).norm(dim=0)))
    return torch.cat([size, rate * ratio, 2.0 * math.pi * uniform[5:8]])


def check_speed(craft: Craft, speed_m_s: float, size_m: float = 1.0) -> None:
    """Raise ConfigError, with the bound, for a figure-eight that needs more than 80 % of the thrust."""
    most_m_s = math.sqrt(horizontal_acceleration_m_s2(craft, 0.8) * size_m / _EIGHT)
    if speed_m_s > most_m_s:
        raise ConfigError(
            f"{speed_m_s:g} m/s is faster than craft '{craft.name}' can fly a figure-eight of {size_m:g} m: "
            f"with a thrust of {craft.thrust_to_weight:.2f} times its weight, at most {most_m_s:.1f} m/s. "
            "Lower speed_m_s."
        )


def tracking_task(speed_m_s: float = 2.0) -> TrackingTask:
    """Task of a figure-eight of 2 m by 1 m; random curves of training reach 1.1 times its speed and at least
    1.15 times its acceleration. Raises ConfigError as `figure_eight`.
    """
    most_m_s2 = max(_CURVE_M_S2, _HARDER * _EIGHT * speed_m_s**2)
    return TrackingTask(
        curve=figure_eight(speed_m_s), most_speed_m_s=1.1 * speed_m_s, most_acceleration_m_s2=most_m_s2
    )


def figure_eight(speed_m_s: float = 2.0, size_m: float = 1.0) -> Curve:
    """x = A sin(w t), y = A / 2 sin(2 w t), A = size_m; its largest speed sqrt(2) A w is at the crossing.

    Raises ConfigError for a speed or a size that is not positive.
    """
    if not (speed_m_s > 0.0 and size_m > 0.0):
        raise ConfigError(
            f"A figure-eight needs a speed and a size above 0, found {speed_m_s:g} m/s and {size_m:g} m."
        )
    rate = speed_m_s / (math.sqrt(2.0) * size_m)
    return (size_m, 0.5 * size_m, 0.0, rate, 2.0 * rate, 0.0, 0.0, 0.0, 0.0)
