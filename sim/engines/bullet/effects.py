"""Air near the floor and near other drones: the models of gym-pybullet-drones, as pure functions.

    ground effect  T_i <- T_i (1 + c_g (r / 4 h_i)^2)                        (Shi et al. 2019, for comparison)
    downwash       F = -c_1 (r / 4 dz)^2 exp(-1/2 (d_xy / (c_2 dz + c_3))^2) z_b  (Panerati et al. 2021)
    rotor drag     F = -diag(c_xy, c_xy, c_z) (sum of rotor speeds [rad/s]) v     (Forster 2015)

r: radius of a propeller, h_i: height of rotor i over the floor; dz, d_xy: how far the other drone is above
and aside; z_b: the axis of the lower drone's body, whose lift it takes away (their code applies it in the
frame of its link).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy import ndarray

from robo_rl.core.errors import ConfigError, UnknownNameError
from robo_rl.core.shapes import Float
from sim.engines.quad.craft import GRAVITY_M_S2, Craft, load_craft

EFFECTS = ("ground", "downwash", "drag")
REACH_M = 10.0  # drones farther aside than this are not felt
NARROWEST_M = 1e-3  # the width c_2 dz + c_3 passes through zero


@dataclass(frozen=True, slots=True)
class AirEffects:
    """Surroundings of the drones: height over the floor, other craft, effects of the air."""

    effects: tuple[str, ...] = EFFECTS
    height_m: float = 1.0  # of the origin over the floor
    above_m: float | None = None  # a further craft hovers this far above the origin of each; None: alone
    rate_hz: float = 240.0  # PyBullet steps at least this often
    donor: str = "cf2x_gym"  # craft whose coefficients stand in where the flown one has none

    def substeps(self, dt_s: float) -> int:
        """Physics steps in a control step."""
        return max(1, math.ceil(dt_s * self.rate_hz - 1e-9))


def check_scene(scene: AirEffects) -> None:
    """Raises UnknownNameError for an effect or a donor that does not exist, ConfigError for numbers out of
    bounds.
    """
    load_craft(scene.donor)
    for effect in scene.effects:
        if effect not in EFFECTS:
            raise UnknownNameError("effect", effect, EFFECTS)
    if not 60.0 <= scene.rate_hz <= 10_000.0:
        raise ConfigError(f"rate_hz = {scene.rate_hz:g} is out of bounds: PyBullet steps at 60 ... 10000 Hz.")
    if not (math.isfinite(scene.height_m) and scene.height_m > 0.0):
        raise ConfigError(
            f"height_m = {scene.height_m:g} is out of bounds: the goal must be above the floor."
        )
    if scene.above_m is not None and not scene.above_m > 0.0:
        raise ConfigError(
            f"above_m = {scene.above_m:g} is out of bounds: the other craft must be above the goal."
        )


def borrowed(craft: Craft, scene: AirEffects) -> dict[str, Any]:
    """Coefficients that the effects need and the craft lacks, taken from the scene's donor.

    A craft with any drag of its own keeps only that one, since it was fitted without another.
    """
    donor = load_craft(scene.donor)
    found: dict[str, Any] = {}
    near = [name for name in ("ground", "downwash") if name in scene.effects]
    if near and craft.prop_radius_m == 0.0:
        found["prop_radius_m"] = donor.prop_radius_m
    if "ground" in near and craft.ground_effect == 0.0:
        found["ground_effect"] = donor.ground_effect
    if "downwash" in near and not any(craft.downwash):
        found["downwash"] = donor.downwash
    own_drag = (*craft.linear_drag_n_s_m, *craft.rotor_drag_n_s2_m, craft.quadratic_drag_n_s2_m2)
    if "drag" in scene.effects and not any(own_drag):
        found["rotor_drag_n_s2_m"] = donor.rotor_drag_n_s2_m
    return found


def equipped(craft: Craft, scene: AirEffects) -> Craft:
    """The craft with the borrowed coefficients."""
    return replace(craft, **borrowed(craft, scene))


def ground_gain(craft: Craft, height_m: Float[ndarray, "*s"]) -> Float[ndarray, "*s"]:
    """Factor on a rotor's thrust; no larger than 1 + 4 / 15, where gym-pybullet-drones cuts it off, too."""
    least_m = 0.25 * craft.prop_radius_m * math.sqrt(15.0 * craft.ground_effect / 4.0)
    ratio = craft.prop_radius_m / (4.0 * np.maximum(height_m, max(least_m, 1e-6)))
    gain: ndarray = 1.0 + craft.ground_effect * ratio * ratio
    return gain


def downwash_n(
    craft: Craft, above_m: Float[ndarray, "*s"], aside_m: Float[ndarray, "*s"]
) -> Float[ndarray, "*s"]:
    """Push against its lift by one drone that flies `above_m` higher and `aside_m` away; none from drones
    below.

    At most the craft's weight: the formula has no bound at small distances, but a wake carries no more
    momentum than the thrust that made it.
    """
    strength, slope, offset = craft.downwash
    higher = np.maximum(above_m, 1e-6)
    width = slope * higher + offset
    width = np.maximum(np.abs(width), NARROWEST_M)
    force = strength * (craft.prop_radius_m / (4.0 * higher)) ** 2 * np.exp(-0.5 * (aside_m / width) ** 2)
    felt = (above_m > 0.0) & (aside_m < REACH_M)
    return np.where(felt, np.minimum(force, craft.mass_kg * GRAVITY_M_S2), 0.0)


def downwash_among(craft: Craft, position_m: Float[ndarray, "3 n"], per_arena: int) -> Float[ndarray, " n"]:
    """Push on each drone by the others of its arena, in total at most its weight."""
    num = position_m.shape[1]
    place = position_m.reshape(3, num // per_arena, per_arena)
    apart = place[:, :, None, :] - place[:, :, :, None]  # [axis, arena, who feels it, who makes it]
    force: ndarray = downwash_n(craft, apart[2], np.hypot(apart[0], apart[1])).sum(-1).reshape(num)
    kept: ndarray = np.minimum(force, craft.mass_kg * GRAVITY_M_S2)
    return kept


def downwash_world_n(push_n: Float[ndarray, " n"], turn: Float[ndarray, "3 3 n"]) -> Float[ndarray, "3 n"]:
    """The push as a force, world axes: against the body's z. turn: body -> world."""
    force: ndarray = -push_n * turn[:, 2]
    return force
