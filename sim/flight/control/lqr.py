"""Infinite-horizon discrete LQR about hover: 12 states, thrust and torques as inputs.

    x = (position, velocity, rotation vector, rates) along the reference's yaw;  u =  (thrust - m g, torques)
    x+ = A x + B u from our step by torch.func.jacrev;  min sum x'Qx + u'Ru
    u = -K x,  K = (R + B'PB)^-1 B'PA with P from the discrete Riccati equation

Q and R weigh deviations by Bryson's rule, and follow from the same frequencies as all other gains: an error
of one metre weighs as much as w m/s, a tilt of w^2 / g, and w_a and w_a^2 times this tilt as rate and angular
acceleration. The law is linear, so it is optimal for small tilts only, although it recovers from large ones.
It has no integral.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.linalg import solve_discrete_are
from torch import Tensor

from sim.engines.quad.craft import GRAVITY_M_S2, Craft
from sim.engines.quad.dynamics import QuadPhysics, make_step
from sim.engines.quad.layout import EXTERNAL_SIZE, POS, QUAT, RATE, ROTOR, VEL, Vec, parameters, xyz
from sim.flight.control.controllers import REF_ACC, REF_POS, REF_VEL, REF_YAW, Controller
from sim.flight.control.gains import ControllerGains, gains_for
from sim.flight.control.mixer import make_mixer, make_motors
from sim.flight.control.position import near
from sim.flight.control.vectors import sub

Matrix = NDArray[np.float64]


def make_lqr(craft: Craft, dt_s: float, gains: ControllerGains | None = None) -> Controller:
    """LQR controller without memory."""
    limits = gains or gains_for(craft, dt_s)
    motors = make_motors(craft, dt_s, limits.rotor_s)
    gain = lqr_gain(craft, dt_s, limits)
    # Entries that are zero by symmetry are skipped.
    gain[np.abs(gain) < 1e-9 * np.abs(gain).max(axis=1, keepdims=True)] = 0.0
    lines: list[list[float]] = gain.tolist()
    weight_n = craft.mass_kg * GRAVITY_M_S2

    def law(state: Tensor, reference: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        yaw, accel = reference[REF_YAW], xyz(reference[REF_ACC])
        position = along(near(sub(xyz(state[POS]), xyz(reference[REF_POS])), limits), yaw)
        velocity = along(sub(xyz(state[VEL]), xyz(reference[REF_VEL])), yaw)
        ax, ay, az = along(accel, yaw)
        rx, ry, rz = rotation_vector(state[QUAT], yaw)
        turned = (rx + ay / GRAVITY_M_S2, ry - ax / GRAVITY_M_S2, rz)
        x = (*position, *velocity, *turned, *xyz(state[RATE]))
        u = [weighted(line, x) for line in lines]
        thrust_n = (weight_n + craft.mass_kg * az - u[0]).clamp(min=0.0)
        return motors(thrust_n, (-u[1], -u[2], -u[3]), state[ROTOR].unbind(0)), memory.clone()

    return Controller(0, law)


def weighted(weights: list[float], x: tuple[Tensor, ...]) -> Tensor:
    """Weighted sum of the states, without the terms of zero weight."""
    total = torch.zeros_like(x[0])
    for weight, part in zip(weights, x, strict=True):
        total = total + weight * part if weight else total
    return total


def linearise(craft: Craft, dt_s: float) -> tuple[Matrix, Matrix]:
    """(A (12, 12), B (12, 4)) of one step about hover, with rotors without lag."""
    step, mix = make_step(craft, QuadPhysics(dt_s=dt_s)), make_mixer(craft)
    params = parameters(craft, dt_s).double()
    external = torch.zeros(EXTERNAL_SIZE, 1, dtype=torch.float64)

    def after(z: Tensor) -> Tensor:
        half = 0.5 * z[6:9]
        quat = torch.cat([torch.sqrt(1.0 - (half * half).sum()[None]), half])
        thrust_n = z[12:13] + craft.mass_kg * GRAVITY_M_S2
        speeds = mix(thrust_n, (z[13:14], z[14:15], z[15:16]))
        start = torch.cat([z[0:3], quat, z[3:6], z[9:12]])[:, None]
        end = step(torch.cat([start, speeds]), speeds, params, external)[:, 0]
        return torch.cat([end[POS], end[VEL], 2.0 * end[QUAT][1:], end[RATE]])

    jacobian: Tensor = torch.func.jacrev(after)(torch.zeros(16, dtype=torch.float64))
    whole = jacobian.numpy()
    return whole[:, :12], whole[:, 12:]


def lqr_gain(craft: Craft, dt_s: float, gains: ControllerGains) -> Matrix:
    """K (4, 12), solved in units of the deviations, where Q and R are identities, for accuracy."""
    a, b = linearise(craft, dt_s)
    x, u = deviations(craft, gains)
    a, b = a * x[None, :] / x[:, None], b * u[None, :] / x[:, None]
    p = solve_discrete_are(a, b, np.eye(12), np.eye(4))
    k = np.linalg.solve(np.eye(4) + b.T @ p @ b, b.T @ p @ a)
    found: Matrix = k * u[:, None] / x[None, :]
    return found


def deviations(craft: Craft, gains: ControllerGains) -> tuple[Matrix, Matrix]:
    """Deviations of the 12 states and 4 inputs, in their own units, that have equal weight."""
    w, w_a, w_y = gains.position_rad_s, gains.attitude_rad_s, gains.yaw_rad_s
    tilt = w * w / GRAVITY_M_S2
    jx, jy, jz = craft.inertia_kg_m2
    x = [1.0, 1.0, 1.0, w, w, w, tilt, tilt, 1.0, tilt * w_a, tilt * w_a, w_y]
    return np.array(x), np.array([craft.mass_kg * w * w, jx * tilt * w_a**2, jy * tilt * w_a**2, jz * w_y**2])


def along(a: Vec, yaw_rad: Tensor) -> Vec:
    """A vector of the world in axes turned about z by `yaw_rad`."""
    c, s = torch.cos(yaw_rad), torch.sin(yaw_rad)
    return c * a[0] + s * a[1], c * a[1] - s * a[0], a[2]


def rotation_vector(quat: Tensor, yaw_rad: Tensor) -> Vec:
    """2 x the vector part of conj(q_yaw) q with w >= 0: rotation from level at that yaw (quat: wxyz)."""
    w, x, y, z = quat.unbind(0)
    c, s = torch.cos(0.5 * yaw_rad), torch.sin(0.5 * yaw_rad)
    sign = torch.where(c * w + s * z < 0.0, -2.0, 2.0)
    return sign * (c * x + s * y), sign * (c * y - s * x), sign * (c * z - s * w)
