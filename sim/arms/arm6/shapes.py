"""Shapes of a simulated arm and its scene, for viewers that draw them from joint positions alone.

A shape belongs to a link: -1 is the world, i the frame that turns with joint i of the robot's description.
Its place in that frame is fixed, or slides with a joint, as a finger of a gripper does.
"""

from __future__ import annotations

from typing import Any

import mujoco
import numpy as np
from numpy import ndarray

from robo_rl.core.shapes import Float

WORLD = -1
KINDS = {
    mujoco.mjtGeom.mjGEOM_SPHERE: ("sphere", 1),
    mujoco.mjtGeom.mjGEOM_CAPSULE: ("capsule", 2),
    mujoco.mjtGeom.mjGEOM_CYLINDER: ("cylinder", 2),
    mujoco.mjtGeom.mjGEOM_BOX: ("box", 3),
}


def scene_shapes(model: Any, data: Any) -> list[dict[str, Any]]:
    """Every opaque sphere, capsule, cylinder and box, where `data` has it now.

    size_m: radius; radius and half-length along z; or half-sizes. quat: wxyz, shape -> link.
    """
    shapes = (_shape(model, data, geom) for geom in range(model.ngeom))
    return [shape for shape in shapes if shape is not None]


def _shape(model: Any, data: Any, geom: int) -> dict[str, Any] | None:
    """One shape; None for planes, meshes, transparent marks, and what is put below the floor."""
    known = KINDS.get(mujoco.mjtGeom(model.geom_type[geom]))
    at, link, slides = _link(model, int(model.geom_bodyid[geom]))
    sunk = link == WORLD and data.geom_xpos[geom][2] < 0.0
    if known is None or sunk or model.geom_rgba[geom][3] < 1.0:
        return None
    kind, sizes = known
    pos_m, quat = _place(model, geom, at)
    if link == WORLD:
        pos_m, quat = data.geom_xpos[geom], _quat(data.geom_xmat[geom])
    return {
        "kind": kind,
        "link": link,
        "size_m": np.round(model.geom_size[geom][:sizes], 5).tolist(),
        "pos_m": np.round(pos_m, 5).tolist(),
        "quat": np.round(quat, 6).tolist(),
        "rgb": np.round(model.geom_rgba[geom][:3], 3).tolist(),
        **({} if slides is None else {"slides": slides}),
    }


def _link(model: Any, of: int) -> tuple[int, int, dict[str, Any] | None]:
    """(body of the link's frame, number of the link, how the shape slides in it) of a body."""
    slides = None
    while of and not model.body_jntnum[of]:
        of = int(model.body_parentid[of])
    if of and model.jnt_type[model.body_jntadr[of]] == mujoco.mjtJoint.mjJNT_SLIDE:
        joint = int(model.body_jntadr[of])
        slides = {"joint": _leader(model, joint), "axis": model.jnt_axis[joint].tolist()}
        of = int(model.body_parentid[of])
    return of, int(model.body_jntadr[of]) if of else WORLD, slides


def _leader(model: Any, joint: int) -> int:
    """The joint that a joint follows by an equality constraint, else itself."""
    follows = (model.eq_type == mujoco.mjtEq.mjEQ_JOINT) & (model.eq_obj1id == joint)
    found = np.flatnonzero(follows)
    return int(model.eq_obj2id[found[0]]) if len(found) else joint


def _place(model: Any, geom: int, at: int) -> tuple[Float[ndarray, " 3"], Float[ndarray, " 4"]]:
    """Position and orientation of a geom in the frame of a body above it, with joints between at zero."""
    pos_m, quat = model.geom_pos[geom].copy(), model.geom_quat[geom].copy()
    of = int(model.geom_bodyid[geom])
    while of not in (at, 0):
        turned, product = np.empty(3), np.empty(4)
        mujoco.mju_rotVecQuat(turned, pos_m, model.body_quat[of])
        mujoco.mju_mulQuat(product, model.body_quat[of], quat)
        pos_m, quat = model.body_pos[of] + turned, product
        of = int(model.body_parentid[of])
    return pos_m, quat


def _quat(matrix: Float[ndarray, " 9"]) -> Float[ndarray, " 4"]:
    quat = np.empty(4)
    mujoco.mju_mat2Quat(quat, matrix)
    return quat
