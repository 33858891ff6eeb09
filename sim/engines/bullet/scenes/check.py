"""Check for features of a scene that Bullet lacks, before anything is built."""

from __future__ import annotations

from typing import Any

import mujoco

from robo_rl.core.errors import ConfigError
from sim.engines.bullet.scenes.build import SHAPES
from sim.engines.scene import Scene

_FREE, _BALL = int(mujoco.mjtJoint.mjJNT_FREE), int(mujoco.mjtJoint.mjJNT_BALL)
_PLANE = int(mujoco.mjtGeom.mjGEOM_PLANE)
MAX_LINKS = 128  # in one multibody, by PyBullet's own limit


def check_scene(scene: Scene) -> None:
    """Raise ConfigError that names all features of the model that PyBullet lacks."""
    found = missing(scene.model)
    if found:
        raise ConfigError(f"PyBullet cannot do this scene: it has {', '.join(found)}. Use engine=mujoco.")


def missing(model: Any) -> list[str]:
    """Sentences on missing features; empty when the scene can be built."""
    touching = [i for i in range(model.ngeom) if model.geom_contype[i] or model.geom_conaffinity[i]]
    affine = (
        int(mujoco.mjtGain.mjGAIN_FIXED),
        int(mujoco.mjtBias.mjBIAS_AFFINE),
        int(mujoco.mjtBias.mjBIAS_NONE),
    )
    scalar = int(mujoco.mjtTrn.mjTRN_JOINT)
    joints = [int(model.actuator_trnid[i, 0]) for i in range(model.nu)]
    kinds = [int(model.jnt_type[joint]) for joint in range(model.njnt)]
    stateful = any(
        int(model.actuator_dyntype[i]) != int(mujoco.mjtDyn.mjDYN_NONE)
        or int(model.actuator_gaintype[i]) != affine[0]
        or int(model.actuator_biastype[i]) not in affine[1:]
        for i in range(model.nu)
    )
    elsewhere = any(int(model.actuator_trntype[i]) != scalar for i in range(model.nu))
    facts = {
        "equality constraints": model.neq > 0,
        "tendons": model.ntendon > 0,
        "ball joints": _BALL in kinds,
        "free joints below other bodies": any(
            kind == _FREE and model.body_parentid[model.jnt_bodyid[joint]] != 0
            for joint, kind in enumerate(kinds)
        ),
        "free joints with damping, armature or springs": _braked_flight(model, kinds),
        "contact pairs of their own": model.npair > 0,
        "a medium with drag": model.opt.density > 0.0 or model.opt.viscosity > 0.0,
        "actuators with states or muscles": stateful,
        "actuators that pull elsewhere than at a hinge or slide": elsewhere
        or any(kinds[joint] in (_FREE, _BALL) for joint in joints if 0 <= joint < len(kinds)),
        "two actuators on one joint": not elsewhere and len(set(joints)) < len(joints),
        "limits on a joint's total force": model.njnt > 0 and bool(model.jnt_actfrclimited.any()),
        "colliding shapes other than planes, spheres, capsules, cylinders, boxes and meshes": any(
            int(model.geom_type[i]) not in SHAPES for i in touching
        ),
        "a moving plane": any(
            int(model.geom_type[i]) == _PLANE and model.body_weldid[model.geom_bodyid[i]] != 0
            for i in touching
        ),
        f"more than {MAX_LINKS} bodies": model.nbody > MAX_LINKS and not _small_trees(model),
    }
    return [name for name, there in facts.items() if there]


def _braked_flight(model: Any, kinds: list[int]) -> bool:
    dofs = [
        int(model.jnt_dofadr[joint]) + i
        for joint, kind in enumerate(kinds)
        if kind == _FREE
        for i in range(6)
    ]
    stiff = any(model.jnt_stiffness[joint] > 0.0 for joint, kind in enumerate(kinds) if kind == _FREE)
    return stiff or any((model.dof_damping[dofs] > 0.0) | (model.dof_armature[dofs] > 0.0))


def _small_trees(model: Any) -> bool:
    """Check that no robot needs more links than a multibody may have: bodies, joints and colliding geoms of
    its tree.
    """
    roots = model.body_rootid.tolist()
    counts: dict[int, int] = {}
    for body, root in enumerate(roots):
        size = 1 + int(model.body_jntnum[body]) + int(model.body_geomnum[body])
        counts[root] = counts.get(root, 0) + (size if root else 0)
    return max(counts.values()) <= MAX_LINKS
