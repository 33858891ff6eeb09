"""State that a velocity policy of a quadcopter observes, from the state of an estimator.

Level axes along the heading: x is the direction of the body's x axis over ground, z points up.
"""

from __future__ import annotations

import numpy as np
from numpy import ndarray

from policies.flight.observer import VehicleState
from robo_rl.core.flight.frames import rotation_of
from robo_rl.core.shapes import Float

SIZE = 7


def level_state(state: VehicleState) -> Float[ndarray, " 7"]:
    """Height [m], velocity [m/s] in level axes along the heading, x and y of the body's z axis in them, yaw
    rate [rad/s]: the `state` of `drone/seek`.

    Raises ConfigError for an unknown frame, DataError for an invalid state.
    """
    here = state.in_enu()
    turn = rotation_of(here.quat_wxyz)
    ahead: ndarray = turn[:2, 0] / max(float(np.hypot(turn[0, 0], turn[1, 0])), 1e-6)
    left = np.array([-ahead[1], ahead[0]])
    velocity, up = here.velocity_m_s, turn[:, 2]
    seen = [
        here.position_m[2],
        ahead @ velocity[:2], left @ velocity[:2], velocity[2],
        ahead @ up[:2], left @ up[:2],
        here.rates_rad_s[2],
    ]  # fmt: skip
    return np.array(seen, dtype=np.float32)
