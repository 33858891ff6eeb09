"""Action levels: what four numbers in [-1, 1] may mean to a quadcopter, from rotor speeds up to a place to go
to.

    motors    rotor speeds, front right, back right, back left, front left
    rates     collective thrust, body rates: what racing policies fly and what flight controllers take
    attitude  collective thrust, roll, pitch (z-y-x angles at the present heading), yaw rate
    velocity  velocity in the world, yaw rate
    position  displacement in the world from where it is, yaw

The lower a level, the more a policy can do and the more it must learn. Every level is a pure function of the
state and the action, without memory; its `spec` says in physical units what -1 and 1 stand for, linearly in
between.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from robo_rl.core.errors import UnknownNameError
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
    physical: Act  # the same, of an action in the units of `spec`

    def __call__(self, state: Float[Tensor, "17 n"], action: Float[Tensor, "4 n"]) -> Float[Tensor, "4 n"]:
        rows = zip(action.clamp(-1.0, 1.0).unbind(0), self.spec.low, self.spec.high, strict=True)
        return self.physical(
            state, torch.stack([low + 0.5 * (high - low) * (a + 1.0) for a, low, high in rows])
        )


Maker = Callable[[Craft, float, ControllerGains, Ranges], Level]


def motors_level(craft: Craft, dt_s: float, gains: ControllerGains, ranges: Ranges) -> Level:
    spec = ActionSpec((0.0,) * 4, (1.0,) * 4, "fraction of maximum speed")
    return Level(spec, lambda state, action: action)


def rates_level(craft: Craft, dt_s: float, gains: ControllerGains, ranges: Ranges) -> Level:
    high = (craft.max_thrust_n, ranges.rate_rad_s, ranges.rate_rad_s, ranges.yaw_rate_rad_s)
    loop = make_rate_loop(craft, dt_s, gains)

    def act(state: Tensor, action: Tensor) -> Tensor:
        return loop(state, action[0], xyz(action[1:4]))

    return Level(ActionSpec((0.0, *(-x for x in high[1:])), high, "N, rad/s, rad/s, rad/s"), act)


def attitude_level(craft: Craft, dt_s: float, gains: ControllerGains, ranges: Ranges) -> Level:
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
    high = (ranges.speed_m_s,) * 3 + (ranges.yaw_rate_rad_s,)
    loop = make_rate_loop(craft, dt_s, gains)
    tilt, _ = attitude_gains(gains)

    def act(state: Tensor, action: Tensor) -> Tensor:
        axes = axes_of(state[QUAT])
        thrust_n, up = thrust_vector(reach_velocity(state, xyz(action[0:3]), gains), axes, craft)
        ex, ey = tilt_error(to_body(axes, up))
        return loop(state, thrust_n, (tilt * ex, tilt * ey, action[3]))

    return Level(ActionSpec(tuple(-x for x in high), high, "m/s, m/s, m/s, rad/s"), act)


def position_level(craft: Craft, dt_s: float, gains: ControllerGains, ranges: Ranges) -> Level:
    high = (ranges.step_m,) * 3 + (math.pi,)
    loop = make_rate_loop(craft, dt_s, gains)

    def act(state: Tensor, action: Tensor) -> Tensor:
        axes = axes_of(state[QUAT])
        wanted_m_s = approach(xyz(action[0:3]), gains)
        thrust_n, up = thrust_vector(reach_velocity(state, wanted_m_s, gains), axes, craft)
        return loop(state, thrust_n, attitude_rates(wanted_frame(axes, up, heading_of(action[3])), gains))

    return Level(ActionSpec(tuple(-x for x in high), high, "m, m, m, rad"), act)


def reach_velocity(state: Tensor, wanted_m_s: Vec, gains: ControllerGains) -> Vec:
    """Acceleration [m/s^2, world] towards a velocity [m/s, world], within what the craft can fly."""
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
