"""Downwash of a drone on those below it, as in gym-pybullet-drones (commit 90b178a, BaseAviary).

    F = -c_1 (r / 4 h)^2 exp(-1/2 (l / (c_2 h + c_3))^2) z_body

for every drone h above and l beside; r is the radius of a propeller. The formula is a fit far below a craft.
Near the craft it is unbounded: at 0.1 m it is 29 times a Crazyflie's weight. Here the sum is limited to the
craft's own weight.
"""

from __future__ import annotations

import torch
from torch import Tensor

from robo_rl.core.errors import ConfigError
from robo_rl.core.shapes import Float
from sim.engines.quad.craft import GRAVITY_M_S2, Craft
from sim.engines.quad.layout import EXTERNAL_SIZE, FORCE, POS, QUAT

_BESIDE_M = 10.0  # horizontal distance beyond which there is no force
_NARROWEST_M = 1e-3  # the width c_2 h + c_3 passes through zero


def check_downwash(craft: Craft) -> None:
    """Raises ConfigError for a craft without coefficients of downwash."""
    if craft.downwash[0] <= 0.0 or craft.prop_radius_m <= 0.0:
        raise ConfigError(
            f"Craft '{craft.name}' has no downwash coefficients. Take craft=cf2x_gym, or give `downwash` and "
            "`prop_radius_m` in a craft file of your own."
        )


def downwash(state: Float[Tensor, "17 n"], drones: int, craft: Craft) -> Float[Tensor, "9 n"]:
    """External forces on every drone from those of its own world; differentiable."""
    position = state[POS].view(3, -1, drones)
    away = position.unsqueeze(2) - position.unsqueeze(
        3
    )  # (3, w, below, above): from the one below to the one above
    beside, above = away[0].square() + away[1].square(), away[2]
    felt = (above > 0.0) & (beside < _BESIDE_M**2)
    height = torch.where(felt, above, 1.0)
    first, second, third = craft.downwash
    strength = first * (craft.prop_radius_m / (4.0 * height)).square()
    width = (second * height + third).square().clamp(min=_NARROWEST_M**2)
    push = (strength * torch.exp(-0.5 * beside / width) * felt).sum(2).flatten()
    push = push.clamp(max=craft.mass_kg * GRAVITY_M_S2)
    w, x, y, z = state[QUAT]
    axis = torch.stack([2.0 * (x * z + w * y), 2.0 * (y * z - w * x), 1.0 - 2.0 * (x * x + y * y)])
    rest = state.new_zeros(EXTERNAL_SIZE - FORCE.stop, state.shape[1])
    return torch.cat([-push * axis, rest])
