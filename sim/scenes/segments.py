"""Segmentation classes of the bodies of a scene: the same for every task, robot and engine."""

from __future__ import annotations

from typing import Any

import mujoco
import numpy as np
from numpy import ndarray

from robo_rl.core.shapes import UInt8
from robo_rl.core.spec import SEGMENTS

_BACKGROUND, _FIXTURE, _OBJECT, _ROBOT = range(len(SEGMENTS))


def classes(model: Any) -> UInt8[ndarray, " bodies"]:
    """Index in `SEGMENTS` of every body, and last, so also at -1, of the sky: bodies = model.nbody + 1.

    robot: bodies connected to an actuated joint, with rigidly held objects. object: other bodies that can
    move. fixture: bodies that stay in place during an episode, such as a cabinet or a wall. background: the
    world itself, with floor and table, and the sky.
    """
    at_joint = model.actuator_trntype == int(mujoco.mjtTrn.mjTRN_JOINT)
    driven = model.jnt_bodyid[model.actuator_trnid[at_joint, 0]]
    robots = set(model.body_rootid[driven].tolist())
    found = np.full(model.nbody + 1, _BACKGROUND, np.uint8)
    for body in range(1, model.nbody):  # parents come first
        moves = model.body_jntnum[body] > 0 or found[model.body_parentid[body]] == _OBJECT
        is_robot = int(model.body_rootid[body]) in robots
        found[body] = _ROBOT if is_robot else _OBJECT if moves else _FIXTURE
    return found
