"""LQR about hover as an explicit linear law of a policy's observation: action = clip(b + W obs, -1, 1).

    x = (position, velocity, tilt, rates, rotor speeds, integral of position)
    min sum x'Qx + u'Ru;   a = hover - K x

The gain is that of control/lqr.py, with its weights (Bryson's rule), for motor commands: rotors and their lag
are part of the plant, so nothing has to be inverted between law and motors, and the law is linear. States
that a policy does not observe are computed from its observation: tilt from the rotation matrix, 2 t = (R21 -
R12, R02 - R20, R10 - R01), rotor speeds from the last actions through the first-order lag, with the hover
action before them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.linalg import solve_discrete_are
from torch import Tensor

from robo_rl.core.errors import ConfigError
from sim.engines.quad.craft import Craft
from sim.engines.quad.dynamics import QuadPhysics, make_step
from sim.engines.quad.layout import EXTERNAL_SIZE, POS, QUAT, RATE, ROTOR, VEL, parameters
from sim.flight.control.gains import gains_for
from sim.flight.control.lqr import deviations
from sim.tasks.flight.observation import SENSED_SIZE, FlightSenses

Matrix = NDArray[np.float64]
POSITION, TILT, ROTORS, INTEGRAL = slice(0, 3), slice(6, 9), slice(12, 16), slice(16, 19)
COMMAND = 1.0  # change of a motor command, -1 ... 1, that weighs as much as the states' deviations


@dataclass(frozen=True, slots=True)
class LinearLaw:
    """action = clip(bias + weight @ obs, -1, 1); `gain` is K over the 19 states above."""

    weight: Matrix  # (4, o)
    bias: Matrix  # (4,)
    gain: Matrix  # (4, 19)


def linear_law(craft: Craft, dt_s: float, senses: FlightSenses) -> LinearLaw:
    """The law of a craft. Raises ConfigError where it is unstable because `history` is too short."""
    a, b = plant(craft, dt_s)
    gain = _gain(craft, dt_s, a, b, senses.integral)
    see = _sight(craft, dt_s, senses)
    weight = -gain @ see
    hover = 2.0 * craft.hover_speed - 1.0
    # Observed last actions are absolute, the law is relative to hover.
    bias = hover - weight[:, SENSED_SIZE : SENSED_SIZE + 4 * senses.history].sum(axis=1) * hover
    law = LinearLaw(weight, bias, gain)
    if (size := growth(law, a, b, senses)) >= 1.0:
        raise ConfigError(
            f"A linear law about hover does not hold {craft.name} with history={senses.history}: a mode "
            f"grows by {size:.3f} times per step. Raise history, so that the last actions determine the "
            "rotors' speeds."
        )
    return law


def plant(craft: Craft, dt_s: float) -> tuple[Matrix, Matrix]:
    """(A (19, 19), B (19, 4)) of one step about hover; inputs and rotors in units of actions, -1 ... 1."""
    step, params = make_step(craft, QuadPhysics(dt_s=dt_s)), parameters(craft, dt_s).double()
    external = torch.zeros(EXTERNAL_SIZE, 1, dtype=torch.float64)

    def after(z: Tensor) -> Tensor:
        half = 0.5 * z[6:9]
        quat = torch.cat([torch.sqrt(1.0 - (half * half).sum()[None]), half])
        rotor = craft.hover_speed + 0.5 * z[12:16]
        start = torch.cat([z[0:3], quat, z[3:6], z[9:12], rotor])[:, None]
        end = step(start, (craft.hover_speed + 0.5 * z[19:23])[:, None], params, external)[:, 0]
        turned = 2.0 * (end[ROTOR] - craft.hover_speed)
        kept = z[16:19] + dt_s * end[POS]
        return torch.cat([end[POS], end[VEL], 2.0 * end[QUAT][1:], end[RATE], turned, kept])

    jacobian: Tensor = torch.func.jacrev(after)(torch.zeros(23, dtype=torch.float64))
    whole = jacobian.numpy()
    return whole[:, :19], whole[:, 19:]


def _gain(craft: Craft, dt_s: float, a: Matrix, b: Matrix, integral: bool) -> Matrix:
    """K (4, 19), solved in units of deviations of equal weight; rotor speeds have no weight."""
    gains = gains_for(craft, dt_s)
    slow_s = 1.0 / (gains.integral * gains.position_rad_s)
    states, _ = deviations(craft, gains)
    unit = np.concatenate([states, np.ones(4), np.full(3, slow_s)])
    used = 19 if integral else 16
    a, b, unit = a[:used, :used], b[:used], unit[:used]
    cost = np.eye(used)
    cost[ROTORS, ROTORS] = 0.0
    a, b = a * unit[None, :] / unit[:, None], b * COMMAND / unit[:, None]
    p = solve_discrete_are(a, b, cost, np.eye(4))
    k = np.linalg.solve(np.eye(4) + b.T @ p @ b, b.T @ p @ a)
    found = np.zeros((4, 19))
    found[:, :used] = k * COMMAND / unit[None, :]
    return found


def _sight(craft: Craft, dt_s: float, senses: FlightSenses) -> Matrix:
    """Matrix (19, o) from an observation to the states, as deviations from hover except for last actions."""
    see = np.zeros((19, senses.obs_size))
    see[POSITION, 0:3] = see[3:6, 12:15] = see[9:12, 15:18] = np.eye(3)
    r = 3  # row i, column j of the rotation matrix is entry r + 3 i + j
    for axis, (plus, minus) in enumerate((((2, 1), (1, 2)), ((0, 2), (2, 0)), ((1, 0), (0, 1)))):
        see[6 + axis, r + 3 * plus[0] + plus[1]], see[6 + axis, r + 3 * minus[0] + minus[1]] = 0.5, -0.5
    for k, share in enumerate(_lag_shares(craft, dt_s, senses.history)):
        see[ROTORS, SENSED_SIZE + 4 * k : SENSED_SIZE + 4 * k + 4] = share * np.eye(4)
    if senses.integral:
        see[INTEGRAL, -3:] = np.eye(3)
    return see


def _lag_shares(craft: Craft, dt_s: float, history: int) -> list[float]:
    """Shares of the last actions, newest first, in the current rotor speed; the remaining share is hover.

    Using the oldest action for all earlier ones would be unbiased, but is unstable on crafts with slow
    rotors.
    """
    tau_s = 0.5 * (craft.rise_s + craft.fall_s)
    left = float(np.exp(-dt_s / tau_s)) if tau_s > 0.0 else 0.0
    return [(1.0 - left) * left**k for k in range(history)]


def growth(law: LinearLaw, a: Matrix, b: Matrix, senses: FlightSenses) -> float:
    """Largest modulus of the sampled closed loop, with true rotors and last actions: stable below 1."""
    kept, own = 4 * senses.history, law.weight
    back = np.zeros((4, 19 + kept))  # action from true states and last actions, as deviations from hover
    back[:, :12], back[:, INTEGRAL] = -law.gain[:, :12], -law.gain[:, INTEGRAL]
    back[:, 19:] = own[:, SENSED_SIZE : SENSED_SIZE + kept]
    loop = np.zeros((19 + kept, 19 + kept))
    loop[:19, :19] = a
    loop[:19] += b @ back
    if kept:
        loop[19:23] = back
        loop[23:, 19 : 19 + kept - 4] = np.eye(kept - 4)
    if not senses.integral:
        loop = np.delete(np.delete(loop, np.s_[16:19], 0), np.s_[16:19], 1)
    return float(np.abs(np.linalg.eigvals(loop)).max())
