"""A smooth path through all gates of a track, flown at a constant speed: what classical controllers follow.

A periodic cubic spline (continuous acceleration) through a point before, in and behind every gate, so that
each is passed along its normal; distances between the points are the spline's parameter.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from scipy.interpolate import CubicSpline
from torch import Tensor

from sim.tasks.flight.track import RaceTrack

_RISE_S = 0.5  # time constant with which the reference gathers speed
_SAMPLES = 8000


@lru_cache(maxsize=16)
def lap_reference(
    track: RaceTrack, speed_m_s: float, dt_s: float, steps: int, before_m: float
) -> Float[Tensor, "9 t"]:
    """Position, velocity and acceleration at every step, from rest `before_m` in front of gate 0 along the
    path.

    With s the way along the path and T its tangent: v = s' T, a = s'' T + s'^2 dT/ds.
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
    rows = np.concatenate([spline(now), speed * tangent, gain * tangent + speed**2 * bend], axis=1)
    return torch.from_numpy(rows.T.copy()).float()


def gate_spline(track: RaceTrack) -> tuple[CubicSpline, Float[ndarray, " k"]]:
    """(the closed spline, its knots); knot 1 is the middle of gate 0."""
    lead_m = 0.4 * track.opening_m
    points = []
    for gate in track.gates:
        normal = np.array([*gate.normal, 0.0])
        points += [np.array(gate.position_m) + shift * normal for shift in (-lead_m, 0.0, lead_m)]
    closed = np.stack([*points, points[0]])
    knots = np.concatenate([[0.0], np.linalg.norm(np.diff(closed, axis=0), axis=1).cumsum()])
    return CubicSpline(knots, closed, bc_type="periodic"), knots
