"""The six-axis arm with a gripper of two fingers, of which one is commanded and the other follows it."""

from __future__ import annotations

from functools import cache
from typing import Any

import mujoco

from sim.arms.arm6.body import ASSET, HOME_RAD, JOINTS, SimulatedArm

GRIPPER = "gripper"
OPEN_M = 0.04  # of each finger from the middle
KP, KV, FORCE_N = 160.0, 25.0, 20.0  # of the servo: closes within a quarter of a second


@cache
def gripping_model() -> Any:
    """Compiled model; shared, because nothing changes it."""
    return gripping_spec().compile()


def gripping_spec() -> Any:
    """New mujoco.MjSpec of the arm and its scene. The fingers touch nothing, as the whole arm."""
    spec = mujoco.MjSpec.from_file(str(ASSET))
    flange = spec.body("flange")
    for name, side in ((GRIPPER, 1.0), ("gripper_mirror", -1.0)):
        finger = flange.add_body(name=name, pos=[0.0, 0.005 * side, 0.06], gravcomp=1.0)
        finger.add_joint(
            name=name, type=mujoco.mjtJoint.mjJNT_SLIDE, axis=[0.0, side, 0.0], range=[0.0, OPEN_M],
            limited=mujoco.mjtLimited.mjLIMITED_TRUE,
        )  # fmt: skip
        finger.add_geom(type=mujoco.mjtGeom.mjGEOM_CAPSULE, fromto=[0, 0, 0, 0, 0, 0.05], size=[0.006, 0, 0])
    follows = spec.add_equality(type=mujoco.mjtEq.mjEQ_JOINT, name1="gripper_mirror", name2=GRIPPER)
    follows.data[:5] = [0.0, 1.0, 0.0, 0.0, 0.0]
    servo = spec.add_actuator(name=GRIPPER, target=GRIPPER, trntype=mujoco.mjtTrn.mjTRN_JOINT)
    servo.set_to_position(kp=KP, kv=KV)
    servo.forcerange = [-FORCE_N, FORCE_N]
    servo.forcelimited = mujoco.mjtLimited.mjLIMITED_TRUE
    return spec


def gripping_arm() -> SimulatedArm:
    """The arm with its gripper open, at home; the seventh position is that of a finger [m]."""
    return SimulatedArm(gripping_model(), (*JOINTS, GRIPPER), (*HOME_RAD, OPEN_M))
