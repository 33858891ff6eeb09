"""A scene's model for motion only: the same forces with less computation.

It leaves out purely visual shapes, and the search for islands and for near parts of a body, which costs a
small scene more than it saves. Where an arm's weight is compensated link by link, gravity is turned off
instead, and each uncompensated weight is applied as a force. Motion is the same up to rounding.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import mujoco
import numpy as np
from numpy import ndarray

from robo_rl.core.shapes import Float
from sim.engines.scene import Scene

_OFF = mujoco.mjtDisableBit
_DENSE = (
    60  # degrees of freedom below which MuJoCo solves with full matrices: islands have nothing to save there
)
_FEW = 64  # number of shapes up to which checking every pair is fast


def motion_model(scene: Scene) -> Any:
    """A new mujoco.MjModel with the scene's bodies, joints, servos and sensors in the scene's order."""
    model = deepcopy(scene.model if scene.bare is None else scene.bare)
    if model.nv < _DENSE:
        model.opt.disableflags |= int(_OFF.mjDSBL_ISLAND)
    if model.ngeom <= _FEW:
        model.opt.disableflags |= int(_OFF.mjDSBL_MIDPHASE)
    return model


def flags_by_sensors(model: Any) -> tuple[int, int]:
    """`disableflags` for steps after which no sensor is read, and for steps after which sensors are read."""
    loud = int(model.opt.disableflags)
    return loud | (int(_OFF.mjDSBL_SENSOR) if model.nsensor else 0), loud


def weigh_by_forces(model: Any) -> Float[ndarray, " 3"] | None:
    """Turn gravity off where `weights` cost less than compensating it.

    Returns the gravity [m/s^2] that was turned off; None where it stays on.
    """
    weighs = (model.body_mass > 0.0) & (model.body_gravcomp != 1.0) & (model.body_weldid != 0)
    needs_gravity = bool(np.any(model.jnt_actgravcomp)) or int(model.opt.disableflags) & int(
        _OFF.mjDSBL_GRAVITY
    )
    if needs_gravity or np.count_nonzero(weighs) >= np.count_nonzero(model.body_gravcomp):
        return None
    gravity: Float[ndarray, " 3"] = model.opt.gravity.copy()
    model.opt.gravity[:] = 0.0
    return gravity


def weights(model: Any, gravity: Float[ndarray, " 3"]) -> Float[ndarray, "nb 6"]:
    """Uncompensated weight of each body as `xfrc_applied`: force [N] at its centre of mass, no torque."""
    left = np.where(model.body_weldid != 0, model.body_mass * (1.0 - model.body_gravcomp), 0.0)
    return np.concatenate([left[:, None] * gravity, np.zeros((model.nbody, 3))], 1)
