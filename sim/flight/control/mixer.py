"""Mixer from thrust and torques to rotor speeds, the last stage of every controller.

    (T, tx, ty, tz) = A t,   A from rotors_m, yaw_sign, torque_per_thrust_m;   t = A^-1 (T, tx, ty, tz)
    c0 + c1 s + c2 s^2 = t   ->   s = (-c1 + sqrt(c1^2 + 4 c2 (t - c0))) / 2 c2

Where rotors saturate, commands are reduced in this order: first yaw torque; then collective thrust, raised or
lowered as needed; roll and pitch torque only where no collective thrust allows them, with each rotor at its
limit. A craft that holds its tilt can still brake and turn, one that does not falls over (the order of
Faessler, Falanga & Scaramuzza, Thrust mixing, saturation, and body-rate control, 2017).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from sim.engines.quad.craft import Craft, inverse_allocation
from sim.engines.quad.layout import Vec

FourRotors = tuple[Tensor, ...]  # a value of each of the four rotors, each (n,)
Mixer = Callable[[Tensor, Vec], Tensor]
Motors = Callable[[Tensor, Vec, FourRotors], Tensor]


def make_mixer(craft: Craft) -> Mixer:
    """mix(thrust_n (n,), torques_nm 3 x (n,)) -> rotor speeds (4, n), 0 ... 1, for rotors without lag."""
    share = _make_share(craft)

    def mix(thrust_n: Tensor, torque_nm: Vec) -> Tensor:
        least, most = torch.zeros_like(thrust_n), torch.ones_like(thrust_n)
        return torch.stack(share(thrust_n, torque_nm, (least,) * 4, (most,) * 4))

    return mix


def make_motors(craft: Craft, dt_s: float, rotor_s: float) -> Motors:
    """motors(thrust_n, torques_nm, rotor speeds 4 x (n,)) -> commands (4, n), 0 ... 1, held for `dt_s`.

    Overdrives the rotors, u = s + g (wanted - s), so that they respond with the time constant `rotor_s`
    instead of their own: g is the change of speed in a step with rotor_s over that with their own lag. A
    rotor then reaches only s (1 - 1/g) ... s + (1 - s) / g in a step. Thrust and torques are allocated within
    these limits, so the order of reduction also holds for rotors with lag.
    """
    share = _make_share(craft)
    rise, fall = (_overdrive(dt_s, tau_s, rotor_s) for tau_s in (craft.rise_s, craft.fall_s))

    def motors(thrust_n: Tensor, torque_nm: Vec, speeds: FourRotors) -> Tensor:
        least = tuple(s * (1.0 - 1.0 / fall) for s in speeds)
        most = tuple(s + (1.0 - s) * (1.0 / rise) for s in speeds)
        wanted = share(thrust_n, torque_nm, least, most)
        ways = [(s, w - s) for s, w in zip(speeds, wanted, strict=True)]
        return torch.stack([s + torch.where(way > 0.0, rise, fall) * way for s, way in ways]).clamp(0.0, 1.0)

    return motors


def _overdrive(dt_s: float, tau_s: float, wanted_s: float) -> float:
    """Factor by which a rotor's command exceeds the wanted change, at least 1."""
    if tau_s <= wanted_s:
        return 1.0
    return float(np.expm1(-dt_s / wanted_s) / np.expm1(-dt_s / tau_s))


def _make_share(craft: Craft) -> Callable[[Tensor, Vec, FourRotors, FourRotors], FourRotors]:
    """share(thrust, torques, least, most) -> rotor speeds within limits, reduced in the order above."""
    inverse = inverse_allocation(craft)
    tiny_n = 1e-6 * craft.max_thrust_n  # smaller torques are not limited

    def share(thrust_n: Tensor, torque_nm: Vec, least: FourRotors, most: FourRotors) -> FourRotors:
        low, high = (tuple(thrust_of(craft, s) for s in limits) for limits in (least, most))
        # In units of collective thrust, of which rotor i gives the share row[0].
        tilt = tuple((row[1] * torque_nm[0] + row[2] * torque_nm[1]) / row[0] for row in inverse)
        floor = most_of(tuple(t / row[0] - part for t, part, row in zip(low, tilt, inverse, strict=True)))
        ceiling = -most_of(tuple(part - t / row[0] for t, part, row in zip(high, tilt, inverse, strict=True)))
        # Where the floor is above the ceiling no collective fits, and the middle changes torques least.
        middle = 0.5 * (floor + ceiling)
        collective = thrust_n.clamp(torch.minimum(floor, middle), torch.maximum(ceiling, middle))
        sums = tuple(row[0] * (collective + part) for row, part in zip(inverse, tilt, strict=True))
        given = tuple(t.clamp(lo, hi) for t, lo, hi in zip(sums, low, high, strict=True))
        yaw = tuple(row[3] * torque_nm[2] for row in inverse)
        room = torch.ones_like(thrust_n)
        for t, part, lo, hi in zip(given, yaw, low, high, strict=True):
            left = torch.where(part > 0.0, hi - t, t - lo)
            room = torch.minimum(room, left / part.abs().clamp(min=tiny_n))
        return tuple(_speed(craft, t + room * part) for t, part in zip(given, yaw, strict=True))

    return share


def thrust_of(craft: Craft, speed: Tensor) -> Tensor:
    """Thrust [N] of one rotor at this speed, 0 ... 1."""
    c0, c1, c2 = craft.thrust_n
    return c0 + speed * (c1 + c2 * speed) if c0 or c1 else c2 * (speed * speed)


def _speed(craft: Craft, thrust_n: Tensor) -> Tensor:
    """Inverse of the thrust curve, 0 ... 1; the square root avoids zero, where its gradient is infinite."""
    c0, c1, c2 = craft.thrust_n
    if c2 == 0.0:
        return ((thrust_n - c0) / c1).clamp(0.0, 1.0)
    a, b = c1 / (2.0 * c2), (c1 * c1 - 4.0 * c2 * c0) / (4.0 * c2 * c2)
    return (torch.sqrt((thrust_n / c2 + b).clamp(min=1e-12)) - a).clamp(0.0, 1.0)


def most_of(values: FourRotors) -> Tensor:
    """Largest of the four rotors' values."""
    a, b, c, d = values
    return torch.maximum(torch.maximum(a, b), torch.maximum(c, d))
