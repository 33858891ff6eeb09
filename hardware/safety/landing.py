"""Descent without a policy: level, at a given speed, without knowledge of the position.

    a = kv ((0, 0, -descend) - v) + (0, 0, g)          acceleration wanted of the rotors, within limits
    rates = ka z^ x R^T a / |a|                        turn the body's up towards it; yaw is left alone
    torque = J kr (rates - w),   t = A^-1 (m |a|, torque)   rotor thrusts, where rotors are what is commanded

The gains are small on purpose: a landing has to work after a bad flight; it does not have to be fast.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy import ndarray

from hardware.messages import Odometry
from robo_rl.core.errors import ConfigError
from robo_rl.core.flight.frames import rotation_of
from robo_rl.core.shapes import Float

GRAVITY_M_S2 = 9.81
_KV, _SIDE_M_S2, _RISE_M_S2 = (
    2.0,
    3.5,
    5.0,
)  # 1/s; limits of the horizontal and vertical acceleration asked for
_ROTOR_S = 0.02  # time constant that slow rotors are overdriven to
_FAR = 1e6  # m/s, rad/s: estimates are clipped here, so that none overflows into NaN
_LAG_SHARE, _DAMPING = 0.33, 0.8  # frequency of the attitude times the lag of the rotors; its damping


@runtime_checkable
class Lander(Protocol):
    """Commands of a descent, in the units in which the craft is commanded."""

    def descend(self, state: Odometry, descend_m_s: float) -> Float[ndarray, " 4"]:
        """Command of a level descent at this speed."""
        ...

    def blind(self) -> Float[ndarray, " 4"]:
        """Command while the state is unknown: slightly less than hover thrust."""
        ...

    def sent(self, values: Float[ndarray, " 4"]) -> None:
        """Note the command sent in this period, by whatever sender."""
        ...

    def off(self) -> Float[ndarray, " 4"]:
        """Motors off."""
        ...


def descent(state: Odometry, descend_m_s: float, gain_per_s: float) -> tuple[float, Float[ndarray, " 3"]]:
    """(acceleration along the body's up [m/s^2], body rates [rad/s]) of a level descent."""
    turn = rotation_of(state.quat_wxyz)
    velocity = turn @ np.clip(state.velocity_body_m_s, -_FAR, _FAR)
    wanted = _KV * (np.array([0.0, 0.0, -descend_m_s]) - velocity)
    side = float(np.hypot(wanted[0], wanted[1]))
    wanted[:2] *= min(1.0, _SIDE_M_S2 / max(side, 1e-9))
    wanted[2] = min(max(wanted[2], -_RISE_M_S2), _RISE_M_S2) + GRAVITY_M_S2
    along = turn.T @ wanted
    up = along / np.linalg.norm(along)
    angle = math.atan2(float(np.hypot(up[0], up[1])), float(up[2]))
    axis = np.array([-up[1], up[0], 0.0]) / max(float(np.hypot(up[0], up[1])), 1e-9)
    return max(float(along[2]), 0.0), gain_per_s * angle * axis


@dataclass(frozen=True)
class RatesLander:
    """(thrust 0 ... 1, body rates [rad/s]), for autopilots with a rate controller of their own.

    hover: thrust at which the craft hovers. Raises ConfigError unless it is above 0 and below 1.
    """

    hover: float
    gain_per_s: float = 5.0

    def __post_init__(self) -> None:
        if not 0.0 < self.hover < 1.0:
            raise ConfigError(
                f"hover={self.hover:g}: expected a hover thrust above 0 and below 1, a fraction and not a "
                "percentage: a landing would climb at full thrust."
            )

    def descend(self, state: Odometry, descend_m_s: float) -> Float[ndarray, " 4"]:
        up_m_s2, rates = descent(state, descend_m_s, self.gain_per_s)
        return np.array([min(1.0, self.hover * up_m_s2 / GRAVITY_M_S2), *rates])

    def blind(self) -> Float[ndarray, " 4"]:
        return np.array([0.95 * self.hover, 0.0, 0.0, 0.0])

    def sent(self, values: Float[ndarray, " 4"]) -> None:
        """Do nothing: a rate controller needs no memory."""

    def off(self) -> Float[ndarray, " 4"]:
        return np.zeros(4)


@dataclass(frozen=True)
class CraftModel:
    """Parameters of a craft whose rotors are commanded one by one; as in the simulator's craft files."""

    mass_kg: float
    inertia_kg_m2: tuple[float, float, float]
    rotors_m: tuple[tuple[float, float], ...]  # (x, y) of each rotor, FLU
    yaw_sign: tuple[float, float, float, float]
    thrust_n: tuple[float, float, float]  # c0 + c1 s + c2 s^2 of one rotor at speed s, 0 ... 1
    torque_per_thrust_m: float
    rise_s: float
    fall_s: float


class MotorsLander:
    """Four rotor speeds in [-1, 1], -1 stopped. Estimates the present speeds from what was sent."""

    def __init__(self, craft: CraftModel, period_s: float) -> None:
        x, y = np.array(craft.rotors_m, dtype=np.float64).T
        allocation = np.stack([np.ones(4), y, -x, craft.torque_per_thrust_m * np.array(craft.yaw_sign)])
        scale = np.abs(allocation).max(axis=1, keepdims=True)
        if np.linalg.matrix_rank(allocation / np.where(scale > 0.0, scale, 1.0)) < 4:
            raise ConfigError(
                "These rotors cannot give three torques: check rotors_m and yaw_sign of the craft."
            )
        self._inverse, self._craft = np.linalg.inv(allocation), craft
        self._inertia = np.array(craft.inertia_kg_m2)
        slow_s = max(craft.rise_s, craft.fall_s)
        frequency = _LAG_SHARE / (min(slow_s, _ROTOR_S) + period_s)
        self._attitude, self._rate = frequency / (2.0 * _DAMPING), 2.0 * _DAMPING * frequency
        self._share = _share(period_s, craft.rise_s), _share(period_s, craft.fall_s)
        self._swift = max(_share(period_s, _ROTOR_S), min(self._share))
        self.hover = self._speed(np.full(4, craft.mass_kg * GRAVITY_M_S2 / 4.0))
        self._turning = self.hover.copy()

    def descend(self, state: Odometry, descend_m_s: float) -> Float[ndarray, " 4"]:
        up_m_s2, rates = descent(state, descend_m_s, self._attitude)
        torque = self._inertia * self._rate * (rates - np.clip(state.rates_rad_s, -_FAR, _FAR))
        torque[2] = 0.0  # the heading does not matter, and yaw costs the most thrust
        tilting = self._inverse[:, 1:3] @ torque[:2]
        lift = self._inverse[:, 0] * self._craft.mass_kg * up_m_s2
        most = sum(self._craft.thrust_n)
        room = min(1.0, 0.5 * most / max(float(np.abs(tilting).max()), 1e-12))
        tilting *= room
        lift = np.clip(
            lift, -tilting.min(), max(most - tilting.max(), -tilting.min())
        )  # tilt has priority over lift
        wanted = self._speed(lift + tilting)
        return 2.0 * self._overdriven(wanted) - 1.0

    def blind(self) -> Float[ndarray, " 4"]:
        return 2.0 * 0.97 * self.hover - 1.0

    def sent(self, values: Float[ndarray, " 4"]) -> None:
        way = np.clip(0.5 * values + 0.5, 0.0, 1.0) - self._turning
        self._turning = self._turning + np.where(way > 0.0, *self._share) * way

    def off(self) -> Float[ndarray, " 4"]:
        return np.full(4, -1.0)

    def _overdriven(self, wanted: Float[ndarray, " 4"]) -> Float[ndarray, " 4"]:
        """Commands beyond the wanted speeds, so that slow rotors reach them as fast ones would."""
        way = wanted - self._turning
        sent: Float[ndarray, " 4"] = self._turning + way * self._swift / np.where(way > 0.0, *self._share)
        return sent.clip(0.0, 1.0)

    def _speed(self, thrust_n: Float[ndarray, " 4"]) -> Float[ndarray, " 4"]:
        c0, c1, c2 = self._craft.thrust_n
        if c2 == 0.0:
            linear: Float[ndarray, " 4"] = np.clip((thrust_n - c0) / c1, 0.0, 1.0)
            return linear
        root = np.sqrt(np.maximum(c1 * c1 - 4.0 * c2 * (c0 - thrust_n), 0.0))
        speed: Float[ndarray, " 4"] = np.clip((root - c1) / (2.0 * c2), 0.0, 1.0)
        return speed


def _share(period_s: float, tau_s: float) -> float:
    """Share of the way to its command that a rotor covers in a period."""
    return 1.0 if tau_s <= 0.0 else -math.expm1(-period_s / tau_s)
