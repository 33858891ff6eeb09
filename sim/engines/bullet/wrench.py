"""Rotor speeds to forces and torques on many drones, in body axes, by the formulas of the `quad` engine.

Thrust curve, lag, drag and rotor momentum as in sim/engines/quad/dynamics.py, per rotor, so that the ground
effect may differ between the sides of a tilted craft; plus downwash, which only this engine has.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy import ndarray

from robo_rl.core.shapes import Float
from sim.engines.bullet.effects import ground_gain
from sim.engines.bullet.motion import Motion, to_body
from sim.engines.quad.craft import Craft
from sim.engines.quad.layout import NAMES


@dataclass(frozen=True, slots=True)
class Drones:
    """n drones of one craft: shared parameters as matrices, individual ones as (n,)."""

    craft: Craft
    mix: Float[ndarray, "4 4"]  # thrusts of the rotors -> total thrust, torques about body x, y, z
    rotor_drag: Float[ndarray, "3 1"]  # N s/m per summed rotor speed of 1, body axes
    dragged: bool  # True where the craft has drag
    momentum: Float[ndarray, " 4"]  # rotor speeds -> angular momentum of the rotors along body z
    mass_kg: Float[ndarray, " n"]
    inertia_kg_m2: Float[ndarray, "3 n"]
    thrust: Float[ndarray, " n"]  # factor on the thrust curve
    rise: Float[ndarray, " n"]  # share of the way to its command that a rotor covers in half a sub-step
    fall: Float[ndarray, " n"]
    linear_drag: Float[ndarray, "3 1"]  # N s/m, body axes
    drag: Float[ndarray, "3 n"]  # factor on all drags, body axes

    @classmethod
    def of(cls, craft: Craft, params: Float[ndarray, "12 #n"], num: int) -> Drones:
        """Parameters from the rows of `sim.engines.quad.layout.parameters`, of one drone or of each."""
        p = dict(zip(NAMES, np.broadcast_to(params, (len(NAMES), num)).astype(np.float64), strict=True))
        x, y = np.array(craft.rotors_m).T
        sign, rad_s = np.array(craft.yaw_sign), craft.max_rpm * 2.0 * math.pi / 60.0
        flat, up = craft.rotor_drag_n_s2_m
        return cls(
            craft=craft,
            mix=np.stack([np.ones(4), y, -x, craft.torque_per_thrust_m * sign]),
            rotor_drag=rad_s * np.array([[flat], [flat], [up]]),
            dragged=any((*craft.linear_drag_n_s_m, *craft.rotor_drag_n_s2_m, craft.quadratic_drag_n_s2_m2)),
            # A rotor turns against the torque that it puts on the body.
            momentum=-craft.rotor_inertia_kg_m2 * rad_s * sign,
            mass_kg=1.0 / p["inv_mass"],
            inertia_kg_m2=1.0 / np.stack([p["inv_jx"], p["inv_jy"], p["inv_jz"]]),
            thrust=p["thrust"],
            rise=p["rise"],
            fall=p["fall"],
            linear_drag=np.array(craft.linear_drag_n_s_m)[[0, 0, 1], None],
            drag=np.stack([p["drag_xy"], p["drag_xy"], p["drag_z"]]),
        )


@dataclass(frozen=True, slots=True)
class ExternalForces:
    """Forces on the drones besides their rotors; None: none."""

    force_n: Float[ndarray, "3 n"] | None = None  # world
    torque_nm: Float[ndarray, "3 n"] | None = None  # body
    air_m_s: Float[ndarray, "3 n"] | None = None  # velocity of the air, world
    height_m: Float[ndarray, "4 n"] | None = None  # of the rotors over the floor, where the floor is felt


def rotor_speeds(
    now: Float[ndarray, "4 n"], goal: Float[ndarray, "4 n"], drones: Drones
) -> tuple[Float[ndarray, "4 n"], Float[ndarray, "4 n"]]:
    """Speeds in the middle and at the end of a sub-step: the first-order lag in closed form."""
    way = goal - now
    share = np.where(way > 0.0, drones.rise, drones.fall)
    middle = now + way * share
    return middle, middle + (goal - middle) * share


def wrench(
    drones: Drones, motion: Motion, speeds: Float[ndarray, "4 n"], outside: ExternalForces
) -> tuple[Float[ndarray, "3 n"], Float[ndarray, "3 n"]]:
    """Force at the centre of mass and torque, in body axes; PyBullet adds gravity."""
    c0, c1, c2 = drones.craft.thrust_n
    thrust = drones.thrust * (c0 + speeds * (c1 + c2 * speeds))
    if outside.height_m is not None:
        # An inverted craft blows upwards.
        thrust = thrust * np.where(motion.turn[2, 2] > 0.0, ground_gain(drones.craft, outside.height_m), 1.0)
    total = drones.mix @ thrust
    torque = total[1:]
    force = np.zeros_like(torque) if outside.force_n is None else to_body(motion.turn, outside.force_n)
    force[2] += total[0]
    if drones.dragged:
        force -= drag(drones, motion, speeds, outside.air_m_s)
    if outside.torque_nm is not None:
        torque = torque + outside.torque_nm
    if drones.craft.rotor_inertia_kg_m2 > 0.0:  # -w x (0, 0, h): does no work
        spin = drones.momentum @ speeds
        torque[0] -= motion.rate_rad_s[1] * spin
        torque[1] += motion.rate_rad_s[0] * spin
    return force, torque


def drag(
    drones: Drones, motion: Motion, speeds: Float[ndarray, "4 n"], air_m_s: Float[ndarray, "3 n"] | None
) -> Float[ndarray, "3 n"]:
    """Drag force [N] in body axes, to be subtracted: linear, by the rotors' speed, and quadratic."""
    relative = motion.velocity_m_s if air_m_s is None else motion.velocity_m_s - air_m_s
    flow = to_body(motion.turn, relative)
    per_speed = drones.linear_drag + drones.rotor_drag * speeds.sum(0)
    if (square := drones.craft.quadratic_drag_n_s2_m2) > 0.0:
        per_speed = per_speed + square * np.sqrt((flow * flow).sum(0))
    force: ndarray = drones.drag * per_speed * flow
    return force


def rotor_heights(craft: Craft, motion: Motion, floor_m: float) -> Float[ndarray, "4 n"]:
    """Height of each rotor over the floor."""
    heights: ndarray = motion.position_m[2] - floor_m + np.array(craft.rotors_m) @ motion.turn[2, :2]
    return heights
