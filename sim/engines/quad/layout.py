"""Rows of the engine's tensors. Struct of arrays: row = component, column = drone.

A row is contiguous, so one compiled loop walks all drones with full vector width; (n, 3) arrays cost five
times more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from robo_rl.core.errors import ConfigError
from robo_rl.core.shapes import Float
from sim.engines.quad.craft import Craft

POS, QUAT, VEL, RATE, ROTOR = slice(0, 3), slice(3, 7), slice(7, 10), slice(10, 13), slice(13, 17)
STATE_SIZE = (
    17  # position [m, world], quaternion [wxyz, body -> world], velocity [m/s, world], rates [rad/s, body],
)
#                  rotor speeds [fraction of maximum]
FORCE, TORQUE, WIND = slice(0, 3), slice(3, 6), slice(6, 9)
EXTERNAL_SIZE = 9  # force [N, world], torque [N m, body], velocity of the air [m/s, world]

Vec = tuple[Tensor, Tensor, Tensor]  # x, y, z, each (n,)


@dataclass(frozen=True, slots=True)
class Spread:
    """Half-widths of uniform randomisation, as fractions of the craft's own values."""

    mass: float = 0.0
    inertia: float = 0.0
    thrust: float = 0.0
    lag: float = 0.0
    drag: float = 0.0


def even_spread(width: float, craft: Craft) -> Spread | None:
    """All parameters within +-`width` of the craft's own; None for 0.

    Raises ConfigError where a drone could be drawn that cannot exist or cannot take off.
    """
    if width == 0.0:
        return None
    if not 0.0 < width < 1.0:
        raise ConfigError(
            f"randomize={width:g} cannot be used: mass_kg = {craft.mass_kg:g} of craft '{craft.name}' would "
            f"go down to {craft.mass_kg * (1.0 - width):g}, and no mass may vanish; give at least 0 and less "
            "than 1."
        )
    weakest = craft.thrust_to_weight * (1.0 - width) / (1.0 + width)
    if weakest <= 1.0:
        most = (craft.thrust_to_weight - 1.0) / (craft.thrust_to_weight + 1.0)
        raise ConfigError(
            f"randomize={width:g} cannot be used: the heaviest and weakest craft '{craft.name}' would have a "
            f"full thrust of {weakest:.2f} times its weight, and must be above 1; give less than {most:.2f}."
        )
    return Spread(width, width, width, width, width)


NAMES = (
    "inv_mass",
    "inv_jx",
    "inv_jy",
    "inv_jz",
    "gyro_x",
    "gyro_y",
    "gyro_z",
    "thrust",
    "rise",
    "fall",
    "drag_xy",
    "drag_z",
)
PARAM_SIZE = len(NAMES)


def start(num: int, device: torch.device | str = "cpu") -> Float[Tensor, "17 n"]:
    """At rest at the origin, level, rotors stopped."""
    state = torch.zeros(STATE_SIZE, num, device=device)
    state[3] = 1.0
    return state


def parameters(
    craft: Craft,
    dt_s: float,
    num: int = 1,
    spread: Spread | None = None,
    unit: Float[Tensor, "9 n"] | None = None,
) -> Float[Tensor, "12 n"]:
    """Parameters of each drone for the step, precomputed so that the compiled loop has no division.

    unit: nine uniform numbers in [-1, 1] per drone that say where in `spread` it lies (mass, 3 inertia,
    thrust, rise, fall, 2 drag). The second moments of the body's mass along x, y and z lie in `spread`, and
    its inertia follows from them, so that it can exist. `thrust` scales the thrust curve; `rise` and `fall`
    are the shares of the way to its command that a rotor covers in half a step, 1 - exp(-dt / 2 tau);
    `drag_xy` and `drag_z` scale all drags of the craft.
    """
    if spread is None or unit is None:
        unit, spread = torch.zeros(9, num), Spread()
    mass = craft.mass_kg * (1.0 + spread.mass * unit[0])
    jx, jy, jz = _inertias(craft, spread.inertia * unit[1:4])
    thrust = 1.0 + spread.thrust * unit[4]
    rise, fall = (
        1.0 - torch.exp(-dt_s / (2.0 * tau_s * (1.0 + spread.lag * unit[5 + i])))
        if tau_s > 0.0
        else torch.ones_like(unit[0])
        for i, tau_s in enumerate((craft.rise_s, craft.fall_s))
    )
    drag = 1.0 + spread.drag * unit[7:9]
    rows = (
        1 / mass,
        1 / jx,
        1 / jy,
        1 / jz,
        (jz - jy) / jx,
        (jx - jz) / jy,
        (jy - jx) / jz,
        thrust,
        rise,
        fall,
        *drag,
    )
    return torch.stack(rows)


def _inertias(craft: Craft, change: Float[Tensor, "3 n"]) -> Vec:
    """Moments of inertia about x, y and z after relative changes of the body's second moments.

    J_x = sum m (y^2 + z^2) and so on, so sum m x^2 = (J_y + J_z - J_x) / 2.
    """
    jx, jy, jz = craft.inertia_kg_m2
    moments = (jy + jz - jx, jz + jx - jy, jx + jy - jz)
    x, y, z = (0.5 * max(0.0, moment) * part for moment, part in zip(moments, change, strict=True))
    return jx + y + z, jy + z + x, jz + x + y


def constants(values: Sequence[float], like: Tensor) -> Float[Tensor, "k 1"]:
    """The numbers as a column of the type and device of `like`. Made once: a copy at every step would delay a
    GPU.
    """
    return _column(tuple(values), like.dtype, like.device)


@lru_cache(maxsize=256)
def _column(values: tuple[float, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.tensor(values, dtype=dtype, device=device).unsqueeze(1)


def xyz(vector: Float[Tensor, "3 n"]) -> Vec:
    """The components of each drone's vector, as three tensors (n,)."""
    x, y, z = vector.unbind(0)
    return x, y, z


def rotation_matrix(quat: Tensor) -> Tensor:
    """(9, n) row by row, body -> world, from wxyz (4, n)."""
    w, x, y, z = quat.unbind(0)
    return torch.stack([
        1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y),
        2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x),
        2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y),
    ])  # fmt: skip
