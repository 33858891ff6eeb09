"""Flight dynamics of many quadcopters: a pure, differentiable function of tensors, eager or compiled.

    m v' = R z^ (sum T_i) + drag + m g + force         q' = q * (0, w) / 2
    J w' = r x T - w x J w + torque                    s_i' = (u_i - s_i) / tau(rising or falling)

The rotors' first-order response is computed in closed form, exact for any step; the rigid
body takes one Runge-Kutta step of fourth order ("rk4"), or a semi-implicit Euler step ("euler"). Because drag
is the same along both horizontal body axes, D v = d_xy v + (d_z - d_xy) z^ (z^ . v), and only the third
column of R is ever needed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from robo_rl.core.errors import ConfigError
from robo_rl.core.shapes import Float
from sim.engines.quad.craft import GRAVITY_M_S2, Craft
from sim.engines.quad.layout import NAMES

Rows = tuple[Tensor, ...]  # each (n,)
Step = Callable[
    [Float[Tensor, "17 n"], Float[Tensor, "4 n"], Float[Tensor, "12 n"], Float[Tensor, "9 n"]],
    Float[Tensor, "17 n"],
]
INTEGRATORS = ("rk4", "euler")


@dataclass(frozen=True, slots=True)
class QuadPhysics:
    """Effects to simulate, fixed when the step is built; effects that are off cost nothing."""

    dt_s: float = 0.01
    integrator: str = "rk4"
    substeps: int = 1
    wind: bool = False  # the air moves: drag acts on the velocity relative to it
    ground_effect: bool = False
    ground: bool = False  # a floor at z = 0


def check_physics(physics: QuadPhysics, craft: Craft) -> None:
    """Raises ConfigError for a step that makes the integrator unstable, with the bound."""
    if physics.integrator not in INTEGRATORS:
        raise ConfigError(
            f"integrator = '{physics.integrator}' is not known. Known: {', '.join(INTEGRATORS)}."
        )
    if physics.substeps < 1:
        raise ConfigError(f"substeps = {physics.substeps} must be at least 1.")
    bound_s = largest_step_s(craft) * physics.substeps
    if not 0.0 < physics.dt_s <= bound_s:
        raise ConfigError(
            f"dt_s = {physics.dt_s:g} is out of bounds for craft '{craft.name}': above 0 and at most "
            f"{bound_s:.3g} s with {physics.substeps} substeps. Full torque would turn it by more than a "
            "quarter turn in one step."
        )


def largest_step_s(craft: Craft) -> float:
    """Time [s] in which full roll or pitch torque turns the resting craft by 90 degrees; at most 0.05."""
    arm_m = max(abs(part) for rotor in craft.rotors_m for part in rotor)
    torque_nm = arm_m * craft.max_thrust_n / 2.0
    return min(0.05, math.sqrt(math.pi * min(craft.inertia_kg_m2[:2]) / torque_nm))


def make_step(craft: Craft, physics: QuadPhysics) -> Step:
    """step(state, command, params, external) -> state after dt_s. Commands are rotor speeds, clipped to 0 ...
    1.

    Built for one craft's geometry and one set of effects; masses, inertias, lags and drags are per drone, in
    `params` for steps of dt_s / substeps. Raises ConfigError for physics that cannot be integrated.
    """
    check_physics(physics, craft)
    small_s = physics.dt_s / physics.substeps
    integrate = rk4 if physics.integrator == "rk4" else euler

    def step(state: Tensor, command: Tensor, params: Tensor, external: Tensor) -> Tensor:
        goal = tuple(command.clamp(0.0, 1.0).unbind(0))
        outside = tuple(external.unbind(0))
        given = dict(zip(NAMES, params.unbind(0), strict=True))
        rows = tuple(state.unbind(0))
        for _ in range(physics.substeps):
            forces = _Forces(craft, physics, given, outside, rows[2])
            rows = integrate(rows, goal, forces, small_s)
            if physics.ground:
                rows = rest_on_ground(rows)
        return torch.stack(rows)

    return step


class _Forces:
    """Accelerations of the rigid body for one step; what does not change within it is computed once."""

    def __init__(
        self, craft: Craft, physics: QuadPhysics, p: dict[str, Tensor], outside: Rows, height_m: Tensor
    ) -> None:
        self.craft, self.p = craft, p
        self.push = tuple(f * p["inv_mass"] for f in outside[0:3])
        self.twist = tuple(
            t * p[j] for t, j in zip(outside[3:6], ("inv_jx", "inv_jy", "inv_jz"), strict=True)
        )
        self.air = outside[6:9] if physics.wind else None
        self.scale = p["thrust"]
        if physics.ground_effect and craft.ground_effect > 0.0:
            self.scale = self.scale * ground_gain(craft, height_m)

    def rotor_speeds(self, now: Rows, goal: Rows) -> tuple[Rows, Rows, Rows]:
        """Speeds at the start, in the middle and at the end of the step; without lag, at the goal at once."""
        if self.craft.rise_s == 0.0 and self.craft.fall_s == 0.0:
            return goal, goal, goal
        middle = rotor_response(now, goal, self.p)
        return now, middle, rotor_response(middle, goal, self.p)

    def rotor(self, speeds: Rows) -> Rows:
        """Rotor speeds -> (specific thrust, angular accelerations x y z, summed speed), shared by stages."""
        c0, c1, c2 = self.craft.thrust_n
        k, p = self.craft.torque_per_thrust_m, self.p
        thrusts = [
            self.scale * (c0 + s * (c1 + c2 * s)) if c0 or c1 else self.scale * (c2 * (s * s)) for s in speeds
        ]
        (x0, y0), (x1, y1), (x2, y2), (x3, y3) = self.craft.rotors_m
        a, b, c, d = thrusts
        roll = y0 * a + y1 * b + y2 * c + y3 * d
        pitch = -(x0 * a + x1 * b + x2 * c + x3 * d)
        n0, n1, n2, n3 = self.craft.yaw_sign
        yaw = k * (n0 * a + n1 * b + n2 * c + n3 * d)
        total = (a + b) + (c + d)
        spin = self._spin(speeds)
        return (
            total * p["inv_mass"],
            roll * p["inv_jx"] + self.twist[0],
            pitch * p["inv_jy"] + self.twist[1],
            yaw * p["inv_jz"] + self.twist[2],
            (speeds[0] + speeds[1]) + (speeds[2] + speeds[3]),
            spin,
        )

    def _spin(self, speeds: Rows) -> Tensor:
        """Angular momentum of the rotors along body z; a rotor turns against the torque that it puts on the
        body.
        """
        rad_s = self.craft.max_rpm * 2.0 * math.pi / 60.0
        n0, n1, n2, n3 = self.craft.yaw_sign
        h = -(n0 * speeds[0] + n1 * speeds[1] + n2 * speeds[2] + n3 * speeds[3])
        return self.craft.rotor_inertia_kg_m2 * rad_s * h

    def __call__(self, velocity: Rows, quat: Rows, rate: Rows, rotor: Rows) -> tuple[Rows, Rows, Rows]:
        """(v', q', w') for one stage."""
        (vx, vy, vz), (qw, qx, qy, qz), (wx, wy, wz), p = velocity, quat, rate, self.p
        thrust, roll, pitch, yaw, summed, spin = rotor
        zx, zy, zz = 2.0 * (qx * qz + qw * qy), 2.0 * (qy * qz - qw * qx), 1.0 - 2.0 * (qx * qx + qy * qy)
        ax, ay, az = self.push
        along = thrust
        if self._has_drag:
            rx, ry, rz = (
                (vx, vy, vz) if self.air is None else (vx - self.air[0], vy - self.air[1], vz - self.air[2])
            )
            flat, up = self._drag(summed, rx, ry, rz)
            along = thrust - (up - flat) * (zx * rx + zy * ry + zz * rz)
            ax, ay, az = ax - flat * rx, ay - flat * ry, az - flat * rz
        rolled = roll - p["gyro_x"] * (wy * wz)
        pitched = pitch - p["gyro_y"] * (wz * wx)
        yawed = yaw - p["gyro_z"] * (wx * wy)
        if self.craft.rotor_inertia_kg_m2 > 0.0:  # -w x (0, 0, h): does no work
            rolled, pitched = rolled - wy * spin * p["inv_jx"], pitched + wx * spin * p["inv_jy"]
        return (
            (ax + along * zx, ay + along * zy, az + along * zz - GRAVITY_M_S2),
            (
                -0.5 * (qx * wx + qy * wy + qz * wz),
                0.5 * (qw * wx + qy * wz - qz * wy),
                0.5 * (qw * wy + qz * wx - qx * wz),
                0.5 * (qw * wz + qx * wy - qy * wx),
            ),
            (rolled, pitched, yawed),
        )

    @property
    def _has_drag(self) -> bool:
        craft = self.craft
        return any((*craft.linear_drag_n_s_m, *craft.rotor_drag_n_s2_m, craft.quadratic_drag_n_s2_m2))

    def _drag(self, summed: Tensor, rx: Tensor, ry: Tensor, rz: Tensor) -> tuple[Tensor, Tensor]:
        """Drag per mass and velocity, horizontal and along body z."""
        scale = self.p["drag_xy"], self.p["drag_z"]
        flat, up = (s * d for s, d in zip(scale, self.craft.linear_drag_n_s_m, strict=True))
        if any(self.craft.rotor_drag_n_s2_m):
            rad_s = self.craft.max_rpm * 2.0 * math.pi / 60.0
            flat, up = (
                d + s * (c * rad_s * summed)
                for d, s, c in zip((flat, up), scale, self.craft.rotor_drag_n_s2_m, strict=True)
            )
        if self.craft.quadratic_drag_n_s2_m2 > 0.0:
            speed = torch.sqrt(rx * rx + ry * ry + rz * rz + 1e-12)
            flat, up = (
                d + s * (self.craft.quadratic_drag_n_s2_m2 * speed)
                for d, s in zip((flat, up), scale, strict=True)
            )
        return flat * self.p["inv_mass"], up * self.p["inv_mass"]


def rotor_response(speeds: Rows, goal: Rows, p: dict[str, Tensor]) -> Rows:
    """Speeds after half a step: each covers its share of the way to the command, exactly."""
    return tuple(
        s + (u - s) * torch.where(u > s, p["rise"], p["fall"]) for s, u in zip(speeds, goal, strict=True)
    )


def rk4(rows: Rows, goal: Rows, forces: _Forces, dt_s: float) -> Rows:
    """One Runge-Kutta step; rotors at its start, middle and end come from their closed form."""
    pos, quat, vel, rate = rows[0:3], rows[3:7], rows[7:10], rows[10:13]
    now, middle, end = forces.rotor_speeds(rows[13:17], goal)
    first, second, last = forces.rotor(now), forces.rotor(middle), forces.rotor(end)
    x = (*vel, *quat, *rate)
    k1 = _flat(forces(vel, quat, rate, first))
    k2 = _flat(forces(*_split(_along(x, k1, 0.5 * dt_s)), second))
    k3 = _flat(forces(*_split(_along(x, k2, 0.5 * dt_s)), second))
    k4 = _flat(forces(*_split(_along(x, k3, dt_s)), last))
    y = tuple(
        a + dt_s / 6.0 * ((b + e) + 2.0 * (c + d)) for a, b, c, d, e in zip(x, k1, k2, k3, k4, strict=True)
    )
    # The same four stages for p' = v, written out: p + dt v + dt^2 / 6 (a1 + a2 + a3).
    moved = tuple(
        p + dt_s * (v + dt_s / 6.0 * (a + b + c))
        for p, v, a, b, c in zip(pos, vel, k1[:3], k2[:3], k3[:3], strict=True)
    )
    velocity, turned, rates = _split(y)
    return (*moved, *unit_quaternion(turned), *velocity, *rates, *end)


def euler(rows: Rows, goal: Rows, forces: _Forces, dt_s: float) -> Rows:
    """Semi-implicit Euler: velocities first, positions with the new velocities; thrust of the middle of the
    step.
    """
    pos, quat, vel, rate = rows[0:3], rows[3:7], rows[7:10], rows[10:13]
    _, middle, end = forces.rotor_speeds(rows[13:17], goal)
    dv, _, dw = forces(vel, quat, rate, forces.rotor(middle))
    velocity, rates = _along(vel, dv, dt_s), _along(rate, dw, dt_s)
    (qw, qx, qy, qz), (wx, wy, wz), half_s = quat, rates, 0.5 * dt_s
    turned = (
        qw - half_s * (qx * wx + qy * wy + qz * wz),
        qx + half_s * (qw * wx + qy * wz - qz * wy),
        qy + half_s * (qw * wy + qz * wx - qx * wz),
        qz + half_s * (qw * wz + qx * wy - qy * wx),
    )
    return (*_along(pos, velocity, dt_s), *unit_quaternion(turned), *velocity, *rates, *end)


def unit_quaternion(quat: Rows) -> Rows:
    w, x, y, z = quat
    scale = torch.rsqrt(w * w + x * x + y * y + z * z)
    return (w * scale, x * scale, y * scale, z * scale)


def ground_gain(craft: Craft, height_m: Tensor) -> Tensor:
    """Thrust gained near the floor, 1 + c (r / 4h)^2, and at most 1 + 4 / 15, where gym-pybullet-drones cuts
    it off: h >= r sqrt(15 c / 4) / 4.
    """
    least_m = 0.25 * craft.prop_radius_m * math.sqrt(15.0 * craft.ground_effect / 4.0)
    ratio = craft.prop_radius_m / (4.0 * height_m.clamp(min=max(least_m, 1e-6)))
    return 1.0 + craft.ground_effect * ratio * ratio


def rest_on_ground(rows: Rows) -> Rows:
    """Inelastic floor at z = 0: no penetration, and no sliding or rotation while in contact."""
    touching = rows[2] <= 0.0
    free = torch.where(touching, 0.0, 1.0)
    up = torch.where(touching, rows[9].clamp(min=0.0), rows[9])
    return (*rows[0:2], rows[2].clamp(min=0.0), *rows[3:7], rows[7] * free, rows[8] * free, up,
            *(rate * free for rate in rows[10:13]), *rows[13:17])  # fmt: skip


def _along(x: Rows, k: Rows, dt_s: float) -> Rows:
    return tuple(a + dt_s * b for a, b in zip(x, k, strict=True))


def _flat(parts: tuple[Rows, Rows, Rows]) -> Rows:
    return (*parts[0], *parts[1], *parts[2])


def _split(x: Rows) -> tuple[Rows, Rows, Rows]:
    return x[0:3], x[3:7], x[7:10]
