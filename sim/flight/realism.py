"""Imperfections of a flight: latency, delayed and biased sensors, gusts, a discharging battery.

Each is off by default and then costs no time. They act in training and in measurement, on policies and on
classical controllers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from robo_rl.core.errors import ConfigError
from robo_rl.core.shapes import Float
from sim.engines.quad.craft import Craft

GUST_HEIGHT_M = 3.048  # lowest height of the model in MIL-F-8785C, 10 ft
LAST_CHARGE = 0.8  # largest fraction of the charge that is used at the start of an episode
_CELL = (3.7348, 0.00876, 0.468, 3.5294)  # V, V, V, 1 / (charge): E0, K, A, B of Tremblay's lithium-ion cell


@dataclass(frozen=True, slots=True)
class Realism:
    """Imperfections of a flight. Times are in control steps; 0 switches an effect off."""

    latency_steps: int = 0  # delay of commands
    delay_steps: int = 0  # delay of measured positions, as from motion capture
    flow_steps: int = 0  # delay of measured velocities, as from optical flow
    gyro_bias_rad_s: float = 0.0  # standard deviation over flights of the gyro's bias, per axis
    gust_m_s: float = 0.0  # standard deviation of the horizontal gusts
    battery_s: float = 0.0  # time for which a full charge hovers

    @property
    def noise_size(self) -> int:
        """Number of standard normal numbers of a step, per drone."""
        return 3 * (self.gyro_bias_rad_s > 0.0) + 3 * (self.gust_m_s > 0.0) + (self.battery_s > 0.0)

    def bias(self, noise: Float[Tensor, "r n"]) -> list[Tensor]:
        """Bias of the gyro [rad/s, body], constant over a flight; empty where it is off."""
        return [self.gyro_bias_rad_s * noise[-3:]] if self.gyro_bias_rad_s > 0.0 else []

    def start(self, noise: Float[Tensor, "r n"]) -> list[Tensor]:
        """Stationary gusts [m/s] and charge used before the start, each where it is on."""
        noise = noise[:-3] if self.gyro_bias_rad_s > 0.0 else noise
        parts = []
        if self.gust_m_s > 0.0:
            std, _ = gust_model(self.gust_m_s)
            parts.append(noise[0:3] * noise.new_tensor(std).unsqueeze(1))
        if self.battery_s > 0.0:
            parts.append(LAST_CHARGE * 0.5 * (1.0 + torch.erf(noise[-1:] / math.sqrt(2.0))))
        return parts


def steps_of(name: str, time_s: float, dt_s: float) -> int:
    """A time in control steps. Raises ConfigError for a fraction of a step or more than half a second."""
    steps = round(time_s / dt_s)
    if abs(steps * dt_s - time_s) > 1e-6 or not 0.0 <= time_s <= 0.5:
        raise ConfigError(
            f"{name} = {time_s:g} cannot be simulated: it must be 0 ... 0.5 s in whole control steps of "
            f"{dt_s:g} s."
        )
    return steps


def check_realism(realism: Realism, craft: Craft) -> None:
    """Raise ConfigError for gusts on a craft without drag."""
    drag = (*craft.linear_drag_n_s_m, *craft.rotor_drag_n_s2_m, craft.quadratic_drag_n_s2_m2)
    if realism.gust_m_s > 0.0 and not any(drag):
        raise ConfigError(
            f"Gusts cannot move craft '{craft.name}', which has no drag. Choose one that has, for example "
            "craft=cf21, or leave gust_m_s at 0."
        )


def gust_model(horizontal_m_s: float) -> tuple[tuple[float, float, float], tuple[float, float, float]]:
    """Standard deviation [m/s] and correlation time [s] of gusts along x, y and z of the world.

    MIL-F-8785C, low altitude, at its lowest height h = 10 ft: L_w = h, L_u = h / (0.177 + 0.000823 h)^1.2,
    sigma_u / sigma_w = (0.177 + 0.000823 h)^-0.4, sigma_w = 0.1 W20. Simplifications: all three axes have the
    first-order spectrum that the model has for u only; y equals x; eddies pass the craft with the wind speed
    W20 that belongs to such gusts, because a hovering craft has no airspeed. The mean wind is left out.
    """
    feet = GUST_HEIGHT_M / 0.3048
    base = 0.177 + 0.000823 * feet
    vertical = horizontal_m_s * base**0.4
    wind = vertical / 0.1
    along, up = GUST_HEIGHT_M / base**1.2 / wind, GUST_HEIGHT_M / wind
    return (horizontal_m_s, horizontal_m_s, vertical), (along, along, up)


def next_gust(
    gust: Float[Tensor, "3 n"], noise: Float[Tensor, "3 n"], horizontal_m_s: float, dt_s: float
) -> Tensor:
    """Next gust [m/s, world]: g' = a g + sigma sqrt(1 - a^2) n, a = exp(-dt / T), first-order noise."""
    parts = []
    for g, n, std, time_s in zip(gust.unbind(0), noise.unbind(0), *gust_model(horizontal_m_s), strict=True):
        share = math.exp(-dt_s / time_s)
        parts.append(share * g + std * math.sqrt(1.0 - share * share) * n)
    return torch.stack(parts)


def voltage_share(used: Tensor) -> Tensor:
    """Voltage of a cell with a used fraction u of its charge, relative to that of a full cell.

    E = E0 - K / (1 - u) + A exp(-B u), the no-load curve of Tremblay, Dessaint & Dekkiche 2007 (VPPC), with
    the parameters of its 3.6 V lithium-ion cell. Resistance is left out, because thrust curves are measured
    under load.
    """
    e0, k, a, b = _CELL
    full = e0 - k + a
    left = (1.0 - used).clamp(min=0.02)
    return (e0 - k / left + a * torch.exp(-b * used)) / full


def charge_used(
    used: Tensor, speeds: Float[Tensor, "4 n"], craft: Craft, battery_s: float, dt_s: float
) -> Tensor:
    """Used charge after dt_s: power grows with the cube of rotor speed; hovering lasts `battery_s`."""
    power = speeds.pow(3).mean(0, keepdim=True) / craft.hover_speed**3
    return used + (dt_s / battery_s) * power
