"""Flight envelope of a policy: the range of its successful measured flights plus a margin."""

from __future__ import annotations

import torch
from torch import Tensor

from robo_rl.core.flight.envelope import RANGES, FlightEnvelope
from robo_rl.core.shapes import Bool, Float
from sim.flight.trial import Trial

MARGIN = 1.25  # factor over the measured range, so that the safety filter does not act in normal flight
LEAST_TILT_RAD, LEAST_RATE_RAD_S, LEAST_SPEED_M_S, LEAST_SIDE_M = 0.35, 3.0, 0.5, 0.3


def envelope_of(trial: Trial) -> FlightEnvelope | None:
    """The smallest envelope with margin around all successful flights of `trial`; None if there is none.

    Bounds are at least the constants above, because gusts tilt a craft further than calm trials show, and
    at most what a bundle may hold (`RANGES`).
    """
    flown = trial.held
    if not flown.any():
        return None
    recorded = (trial.position_m, trial.quat_wxyz, trial.velocity_m_s, trial.rate_rad_s)
    position, quat, velocity, rate = (_in_flight(values, flown) for values in recorded)
    low, high = position.amin(0), position.amax(0)
    middle, half = (low + high) / 2, ((high - low) / 2 * MARGIN).clamp(min=LEAST_SIDE_M)
    tilt_rad = max(LEAST_TILT_RAD, MARGIN * float(tilt(quat.unsqueeze(2)).max()))
    return FlightEnvelope(
        tilt_rad=min(tilt_rad, torch.pi),
        rate_rad_s=_within("rate_rad_s", LEAST_RATE_RAD_S, MARGIN * float(rate.norm(dim=1).max())),
        speed_m_s=_within("speed_m_s", LEAST_SPEED_M_S, MARGIN * float(velocity.norm(dim=1).max())),
        fence_low_m=_vec3(middle - half),
        fence_high_m=_vec3(middle + half),
        # Not below 2.1 rad: a policy that recovers from upside down may continue.
        cut_tilt_rad=max(2.1, min(1.1 * tilt_rad, torch.pi)),
    )


def _in_flight(values: Float[Tensor, "t c n"], flown: Bool[Tensor, " n"]) -> Float[Tensor, "m c"]:
    """Recorded values of these flights at all steps in flight; a race may end after its laps are done."""
    samples = values[:, :, flown].transpose(1, 2).flatten(0, 1)
    return samples[~samples.isnan().any(1)]


def tilt(quat_wxyz: Float[Tensor, "t 4 n"]) -> Float[Tensor, "t n"]:
    """Angle between the body's z axis and the world's, rad: cos = 1 - 2 (x^2 + y^2)."""
    return (1.0 - 2.0 * quat_wxyz[:, 1:3].square().sum(dim=1)).clamp(-1.0, 1.0).arccos()


def _within(name: str, least: float, value: float) -> float:
    """The value, at least `least` and at most what an envelope permits."""
    return min(max(least, value), RANGES[name][1])


def _vec3(values: Tensor) -> tuple[float, float, float]:
    x, y, z = values.tolist()
    return x, y, z
