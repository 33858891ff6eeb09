"""Action levels: meanings of four numbers in [-1, 1], from rotor speeds to a position.

    motors    rotor speeds, front right, back right, back left, front left
    rates     collective thrust, body rates: the action of racing policies and input of flight controllers
    attitude  collective thrust, roll, pitch (z-y-x angles at the current heading), yaw rate
    velocity  velocity in the world, yaw rate
    position  displacement in the world from the current position, yaw

The lower a level, the more a policy can do and the more it must learn. Every level is a pure function of
state and action, without memory; its `spec` holds the physical values of -1 and 1, with linear interpolation.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from robo_rl.core.errors import UnknownNameError
from robo_rl.core.shapes import Float
from robo_rl.core.spec import ActionSpec
from sim.engines.quad.craft import Craft
from sim.engines.quad.layout import QUAT, VEL, Vec, xyz
from sim.flight.control.attitude import (
    attitude_gains,
    attitude_rates,
    heading_of,
    thrust_vector,
    tilt_error,
    wanted_frame,
)
from sim.flight.control.gains import ControllerGains, gains_for
from sim.flight.control.position import approach, limit_acceleration, position_gains
from sim.flight.control.rates import make_rate_loop
from sim.flight.control.vectors import axes_of, scale, sub, to_body


@dataclass(frozen=True, slots=True)
class Ranges:
    """Ranges of an action that the craft's data do not give."""

    rate_rad_s: float = 6.0  # roll and pitch
    yaw_rate_rad_s: float = 3.0
    tilt_rad: float = 0.6
    speed_m_s: float = 1.0
    step_m: float = 0.5


Act = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class Level:
    """level(state (17, n), action (4, n) in [-1, 1]) -> rotor commands (4, n), 0 ... 1."""

    spec: ActionSpec
    physical: Act  # the same function for an action in the units of `spec`

    def __call__(self, state: Float[Tensor, "17 n"], action: Float[Tensor, "4 n"]) -> Float[Tensor, "4 n"]:
        ranges = zip(action.clamp(-1.0, 1.0).unbind(0), self.spec.low, self.spec.high, strict=True)
        values = [low + 0.5 * (high - low) * (a + 1.0) for a, low, high in ranges]
        return self.physical(state, torch.stack(values))


Maker = Callable[[Craft, float, ControllerGains, Ranges], Level]


def motors_level(craft: Craft, dt_s: float, gains: ControllerGains, ranges: Ranges) -> Level:
    """Rotor speeds as fractions of the maximum."""
    spec = ActionSpec((0.0,) * 4, (1.0,) * 4, "fraction of maximum speed")
    return Level(spec, lambda state, action: action)


def rates_level(craft: Craft, dt_s: float, gains: ControllerGains, ranges: Ranges) -> Level:
    """Collective thrust [N] and body rates [rad/s]."""
    high = (craft.max_thrust_n, ranges.rate_rad_s, ranges.rate_rad_s, ranges.yaw_rate_rad_s)
    loop = make_rate_loop(craft, dt_s, gains)

    def act(state: Tensor, action: Tensor) -> Tensor:
        return loop(state, action[0], xyz(action[1:4]))

    return Level(ActionSpec((0.0, *(-x for x in high[1:])), high, "N, rad/s, rad/s, rad/s"), act)


def attitude_level(craft: Craft, dt_s: float, gains: ControllerGains, ranges: Ranges) -> Level:
    """Collective thrust [N], roll and pitch [rad] at the current heading, yaw rate [rad/s]."""
    high = (craft.max_thrust_n, ranges.tilt_rad, ranges.tilt_rad, ranges.yaw_rate_rad_s)
    loop = make_rate_loop(craft, dt_s, gains)
    tilt, _ = attitude_gains(gains)

    def act(state: Tensor, action: Tensor) -> Tensor:
        axes = axes_of(state[QUAT])
        (nx, ny, _), roll, pitch = axes[0], action[1], action[2]
        flat = torch.rsqrt(nx * nx + ny * ny + 1e-6)
        c, s = nx * flat, ny * flat
        forward, left = torch.sin(pitch) * torch.cos(roll), -torch.sin(roll)
        up = (c * forward - s * left, s * forward + c * left, torch.cos(pitch) * torch.cos(roll))
        ex, ey = tilt_error(to_body(axes, up))
        return loop(state, action[0], (tilt * ex, tilt * ey, action[3]))

    return Level(ActionSpec((0.0, *(-x for x in high[1:])), high, "N, rad, rad, rad/s"), act)


def velocity_level(craft: Craft, dt_s: float, gains: ControllerGains, ranges: Ranges) -> Level:
    """Velocity [m/s, world] and yaw rate [rad/s]."""
    high = (ranges.speed_m_s,) * 3 + (ranges.yaw_rate_rad_s,)
    loop, outer = make_rate_loop(craft, dt_s, gains), make_velocity_loop(craft, gains)

    def act(state: Tensor, action: Tensor) -> Tensor:
        thrust_n, rates = outer(state, action)
        return loop(state, thrust_n, rates)

    return Level(ActionSpec(tuple(-x for x in high), high, "m/s, m/s, m/s, rad/s"), act)


def make_velocity_loop(
    craft: Craft, gains: ControllerGains
) -> Callable[[Tensor, Tensor], tuple[Tensor, Vec]]:
    """loop(state (17, n), velocity [m/s, world] and yaw rate [rad/s] (4, n)) -> thrust_n (n,) and body rates
    3 x (n,) [rad/s] for the rate loop of the craft or of an autopilot.
    """
    tilt, _ = attitude_gains(gains)

    def loop(state: Tensor, wanted: Tensor) -> tuple[Tensor, Vec]:
        axes = axes_of(state[QUAT])
        thrust_n, up = thrust_vector(reach_velocity(state, xyz(wanted[0:3]), gains), axes, craft)
        ex, ey = tilt_error(to_body(axes, up))
        return thrust_n, (tilt * ex, tilt * ey, wanted[3])

    return loop


def position_level(craft: Craft, dt_s: float, gains: ControllerGains, ranges: Ranges) -> Level:
    """Displacement [m, world] from the current position and yaw [rad]."""
    high = (ranges.step_m,) * 3 + (math.pi,)
    loop = make_rate_loop(craft, dt_s, gains)

    def act(state: Tensor, action: Tensor) -> Tensor:
        axes = axes_of(state[QUAT])
        wanted_m_s = approach(xyz(action[0:3]), gains)
        thrust_n, up = thrust_vector(reach_velocity(state, wanted_m_s, gains), axes, craft)
        return loop(state, thrust_n, attitude_rates(wanted_frame(axes, up, heading_of(action[3])), gains))

    return Level(ActionSpec(tuple(-x for x in high), high, "m, m, m, rad"), act)


def reach_velocity(state: Tensor, wanted_m_s: Vec, gains: ControllerGains) -> Vec:
    """Acceleration [m/s^2, world] towards a velocity [m/s, world], within the craft's limits."""
    missing = sub(wanted_m_s, xyz(state[VEL]))
    _, kv = position_gains(gains)
    return limit_acceleration(scale(kv, missing), gains)


LEVELS: dict[str, Maker] = {
    "motors": motors_level,
    "rates": rates_level,
    "attitude": attitude_level,
    "velocity": velocity_level,
    "position": position_level,
}


def make_level(
    name: str, craft: Craft, dt_s: float, ranges: Ranges | None = None, gains: ControllerGains | None = None
) -> Level:
    """A level by name, for commands that are held for `dt_s`. Raises UnknownNameError."""
    if name not in LEVELS:
        raise UnknownNameError("action level", name, LEVELS)
    return LEVELS[name](craft, dt_s, gains or gains_for(craft, dt_s), ranges or Ranges())
