"""Description of a scene for Isaac Gym: an actor per tree of bodies, with the numbers that its importer may
drop.
"""

from __future__ import annotations

from typing import Any

import mujoco
import numpy as np
from numpy import ndarray

from robo_rl.core.errors import ConfigError
from sim.engines.isaacgym.filters import collision_filters
from sim.engines.isaacgym.mjcf import SHAPES, shapes_of, tree_mjcf
from sim.engines.scene import Scene

_FREE, _BALL = int(mujoco.mjtJoint.mjJNT_FREE), int(mujoco.mjtJoint.mjJNT_BALL)


def describe(scene: Scene) -> dict[str, Any]:
    """JSON for `gymsim.GymSim`; SI units, quaternions wxyz. Bodies are named b<row>, joints j<number>.

    Raises ConfigError for what the engine cannot do.
    """
    _check(scene.model)
    model, filters = scene.model, collision_filters(scene.model)
    roots = [row for row in range(1, model.nbody) if int(model.body_parentid[row]) == 0]
    actors = [_actor(model, root, filters) for root in roots]
    if shapes_of(model, 0):
        actors.insert(0, _actor(model, 0, filters))
    touched = [scene.site(_site_name(model, name))[0] for name in scene.touch]
    return {
        "timestep_s": scene.timestep_s,
        "gravity_m_s2": model.opt.gravity.tolist(),
        "actors": actors,
        "touched_bodies": touched,
    }


def _site_name(model: Any, sensor: str) -> str:
    name: str = model.site(int(model.sensor(sensor).objid[0])).name
    return name


def _actor(model: Any, root: int, filters: dict[int, int]) -> dict[str, Any]:
    rows = [root] if root == 0 else [row for row in range(model.nbody) if int(model.body_rootid[row]) == root]
    joints = [j for j in range(model.njnt) if int(model.jnt_bodyid[j]) in rows]
    free = next((j for j in joints if int(model.jnt_type[j]) == _FREE), None)
    # A base that stands still may have weight or not.
    lifted = {float(model.body_gravcomp[row]) for row in rows if int(model.body_weldid[row]) != 0}
    if not lifted <= {1.0} and not lifted <= {0.0}:
        raise _cannot(f"gravity compensation of some bodies of '{model.body(root).name}' only")
    return {
        "name": f"a{root}",
        "mjcf": tree_mjcf(model, rows),
        "fixed": free is None,
        "weightless": lifted == {1.0},
        "start_m": model.body_pos[root].tolist(),
        "start_quat": model.body_quat[root].tolist(),
        "free_qpos": -1 if free is None else int(model.jnt_qposadr[free]),
        "free_qvel": -1 if free is None else int(model.jnt_dofadr[free]),
        "fixture": int(model.body_mocapid[root]),
        "com_m": model.body_ipos[root].tolist(),
        "bodies": {f"b{row}": _body(model, row, filters) for row in rows},
        "dofs": {f"j{j}": _dof(model, j) for j in joints if j != free},
    }


def _body(model: Any, row: int, filters: dict[int, int]) -> dict[str, Any]:
    flat = np.zeros(9)
    mujoco.mju_quat2Mat(flat, model.body_iquat[row])
    turn = flat.reshape(3, 3)
    inertia: ndarray = turn @ np.diag(model.body_inertia[row]) @ turn.T
    shapes = [
        {"friction": float(model.geom_friction[g, 0]), "filter": filters[g]} for g in shapes_of(model, row)
    ]
    return {
        "row": row,
        "mass_kg": float(model.body_mass[row]),
        "com_m": model.body_ipos[row].tolist(),
        "inertia_kg_m2": inertia.tolist(),  # about the centre of mass, axes of the body
        "shapes": shapes,
    }


def _dof(model: Any, joint: int) -> dict[str, Any]:
    """A servo is a spring and damper to its target, as is PhysX's drive: kp and kv are used unchanged."""
    dof, qpos = int(model.jnt_dofadr[joint]), int(model.jnt_qposadr[joint])
    servo = next((i for i in range(model.nu) if int(model.actuator_trnid[i, 0]) == joint), -1)
    limited = bool(model.jnt_limited[joint])
    low, high = model.jnt_range[joint].tolist() if limited else (-1e6, 1e6)
    spring = float(model.jnt_stiffness[joint])
    forced = servo >= 0 and bool(model.actuator_forcelimited[servo])
    clips = not int(model.opt.disableflags) & int(mujoco.mjtDisableBit.mjDSBL_CLAMPCTRL)
    clipped = servo >= 0 and clips and bool(model.actuator_ctrllimited[servo])
    targets = model.actuator_ctrlrange[servo].tolist() if clipped else [-1e6, 1e6]
    return {
        "qpos": qpos,
        "qvel": dof,
        "ctrl": servo,
        "targets": targets,  # between which a command is clipped
        "rest": float(model.qpos_spring[qpos]),
        "kp": float(model.actuator_gainprm[servo, 0]) if servo >= 0 else spring,
        "kv": float(-model.actuator_biasprm[servo, 2]) if servo >= 0 else 0.0,
        "effort": float(model.actuator_forcerange[servo, 1]) if forced else 1e6,
        "damping": float(model.dof_damping[dof]),
        "armature": float(model.dof_armature[dof]),
        "frictionloss": float(model.dof_frictionloss[dof]),
        "limited": limited,
        "lower": low,
        "upper": high,
    }


def _check(model: Any) -> None:
    if int(model.neq) or int(model.ntendon):
        raise _cannot("equality constraints and tendons")
    if any(int(kind) == _BALL for kind in model.jnt_type):
        raise _cannot("ball joints")
    for j in range(model.njnt):
        if int(model.jnt_type[j]) != _FREE and float(model.qpos0[int(model.jnt_qposadr[j])]) != 0.0:
            raise _cannot(f"the joint '{model.joint(j).name}', which has a reference other than 0")
    collide = (model.geom_contype | model.geom_conaffinity) != 0
    unknown = {int(kind) for kind in model.geom_type[collide]} - set(SHAPES)
    if unknown:
        raise _cannot(f"collisions of {', '.join(mujoco.mjtGeom(kind).name for kind in sorted(unknown))}")
    for i in range(model.nu):
        name = model.actuator(i).name
        kp, bias = float(model.actuator_gainprm[i, 0]), model.actuator_biasprm[i]
        joint = int(model.actuator_trnid[i, 0])
        if (
            int(model.actuator_trntype[i]) != int(mujoco.mjtTrn.mjTRN_JOINT)
            or float(model.actuator_gear[i, 0]) != 1.0
        ):
            raise _cannot(f"the actuator '{name}', which does not drive one joint without gears")
        still = int(model.actuator_dyntype[i]) == int(mujoco.mjtDyn.mjDYN_NONE)
        if (
            not still
            or float(bias[0]) != 0.0
            or float(bias[1]) != -kp
            or float(model.jnt_stiffness[joint]) != 0.0
        ):
            raise _cannot(f"the actuator '{name}', which is not a position servo")
        low, high = model.actuator_forcerange[i].tolist()
        if bool(model.actuator_forcelimited[i]) and low != -high:
            raise _cannot(f"the actuator '{name}', which pulls with {-low:g} and pushes with {high:g}")


def _cannot(what: str) -> ConfigError:
    return ConfigError(f"The engine isaacgym cannot simulate {what}. Use engine=mujoco, or change the scene.")
