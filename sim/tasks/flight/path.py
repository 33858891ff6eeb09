"""Smooth path through all gates of a track at constant speed: the reference of classical controllers.

The path is a periodic cubic spline with continuous acceleration through one point before, one in and one
behind every gate, so that each gate is passed along its normal. The spline's parameter is the distance
between points.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
from numpy import ndarray
from scipy.interpolate import CubicSpline
from torch import Tensor

from robo_rl.core.shapes import Float
from sim.tasks.flight.track import RaceTrack

_RISE_S = 0.5  # time constant with which the reference reaches its speed
_SAMPLES = 8000


@lru_cache(maxsize=16)
def lap_reference(
    track: RaceTrack,
    speed_m_s: float,
    dt_s: float,
    steps: int,
    before_m: float,
    device: torch.device | None = None,
) -> Float[Tensor, "9 t"]:
    """Position [m], velocity [m/s] and acceleration [m/s^2], all world, at each of steps + 1 times.

    The reference starts at rest on the path, `before_m` in front of gate 0. With arc length s and tangent T:
    v = s' T, a = s'' T + s'^2 dT/ds.
    """
    spline, knots = gate_spline(track)
    u = np.linspace(0.0, knots[-1], _SAMPLES)
    places = spline(u)
    way = np.concatenate([[0.0], np.linalg.norm(np.diff(places, axis=0), axis=1).cumsum()])
    at_gate = float(np.interp(knots[1], u, way))
    time = np.arange(steps + 1) * dt_s
    fading = np.exp(-time / _RISE_S)
    s = at_gate - before_m + speed_m_s * (time - _RISE_S * (1.0 - fading))
    now = np.interp(np.mod(s, way[-1]), way, u)
    first, second = spline(now, 1), spline(now, 2)
    rate = np.linalg.norm(first, axis=1, keepdims=True)
    tangent = first / rate
    bend = (second - tangent * (second * tangent).sum(1, keepdims=True)) / rate**2
    speed, gain = speed_m_s * (1.0 - fading)[:, None], (speed_m_s / _RISE_S * fading)[:, None]
    columns = np.concatenate([spline(now), speed * tangent, gain * tangent + speed**2 * bend], axis=1)
    return torch.from_numpy(columns.T.copy()).float().to(device)


def gate_spline(track: RaceTrack) -> tuple[CubicSpline, Float[ndarray, " k"]]:
    """Returns (closed spline of positions [m, world], its knots); knot 1 is the middle of gate 0."""
    lead_m = 0.4 * track.opening_m
    points = []
    for gate in track.gates:
        normal = np.array([*gate.normal, 0.0])
        points += [np.array(gate.position_m) + shift * normal for shift in (-lead_m, 0.0, lead_m)]
    closed = np.stack([*points, points[0]])
    knots = np.concatenate([[0.0], np.linalg.norm(np.diff(closed, axis=0), axis=1).cumsum()])
    return CubicSpline(knots, closed, bc_type="periodic"), knots
