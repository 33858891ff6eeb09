"""Build a planned scene in a PyBullet client: shapes, multibodies, masses, friction, collision filters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mujoco
from numpy import ndarray

from robo_rl.core.shapes import Float
from sim.engines.bullet.client import load_pybullet
from sim.engines.bullet.scenes.friction import GeomFriction
from sim.engines.bullet.scenes.plan import FIXED, HINGE, Link, Multibody, Pose

SOLVER_ITERATIONS = 50
_PLANE, _SPHERE, _CAPSULE, _CYLINDER, _BOX, _MESH = (
    int(getattr(mujoco.mjtGeom, f"mjGEOM_{kind}"))
    for kind in ("PLANE", "SPHERE", "CAPSULE", "CYLINDER", "BOX", "MESH")
)
SHAPES = (_PLANE, _SPHERE, _CAPSULE, _CYLINDER, _BOX, _MESH)
_ANY = -1  # every bit of a collision mask


def start_world(client: int, step_s: float) -> None:
    """Start an empty world: no bodies, contacts or cached state."""
    p = load_pybullet()
    p.resetSimulation(physicsClientId=client)
    p.setTimeStep(step_s, physicsClientId=client)
    # 1: two links meet if either's group is in the other's mask, which is MuJoCo's rule.
    p.setPhysicsEngineParameter(
        numSolverIterations=SOLVER_ITERATIONS,
        deterministicOverlappingPairs=1,
        collisionFilterMode=1,
        physicsClientId=client,
    )


def build(client: int, model: Any, part: Multibody, base: Pose, friction: GeomFriction) -> int:
    """Make one multibody, its base at `base` in the world, and return its PyBullet id.

    Bullet's own damping, motors and sleeping are off.
    """
    p = load_pybullet()
    kinds = {FIXED: p.JOINT_FIXED, HINGE: p.JOINT_REVOLUTE}
    links = part.links
    body = int(
        p.createMultiBody(
            part.inertia.mass_kg,
            _shape(p, client, model, part.geom),
            basePosition=base[:3].tolist(),
            baseOrientation=xyzw(base),
            linkMasses=[link.inertia.mass_kg for link in links],
            linkCollisionShapeIndices=[_shape(p, client, model, link.geom) for link in links],
            linkVisualShapeIndices=[-1] * len(links),
            linkPositions=[link.pose[:3].tolist() for link in links],
            linkOrientations=[xyzw(link.pose) for link in links],
            linkInertialFramePositions=[link.inertia.pose[:3].tolist() for link in links],
            linkInertialFrameOrientations=[xyzw(link.inertia.pose) for link in links],
            linkParentIndices=[link.parent + 1 for link in links],
            linkJointTypes=[kinds.get(link.kind, p.JOINT_PRISMATIC) for link in links],
            linkJointAxis=[list(link.axis) for link in links],
            physicsClientId=client,
        )
    )
    for i in range(-1, len(links)):
        link = links[i] if i >= 0 else Link(-1, part.pose, inertia=part.inertia, geom=part.geom)
        how = {"linearDamping": 0.0, "angularDamping": 0.0, "jointDamping": 0.0, "restitution": 0.0}
        how |= {"activationState": p.ACTIVATION_STATE_DISABLE_SLEEPING}
        p.changeDynamics(body, i, **how, physicsClientId=client)
        if max(link.inertia.moments_kg_m2) > 0.0:  # Bullet would derive them from the collision shape
            p.changeDynamics(body, i, localInertiaDiagonal=link.inertia.moments_kg_m2, physicsClientId=client)
        if link.joint >= 0 and model.jnt_limited[link.joint]:
            low, high = (model.jnt_range[link.joint] - model.qpos0[model.jnt_qposadr[link.joint]]).tolist()
            p.changeDynamics(body, i, jointLowerLimit=low, jointUpperLimit=high, physicsClientId=client)
        if link.geom >= 0 and int(model.geom_type[link.geom]) == _MESH:
            p.changeDynamics(
                body, i, collisionMargin=0.0, physicsClientId=client
            )  # otherwise contacts begin 1 mm too early
        _touching(p, client, model, body, i, link.geom, friction)
    _dry_friction(p, client, model, body, links)
    return body


def xyzw(pose: Pose) -> list[float]:
    """Quaternion in PyBullet's order."""
    w, x, y, z = pose[3:].tolist()
    return [x, y, z, w]


def _touching(
    p: Any, client: int, model: Any, body: int, link: int, geom: int, friction: GeomFriction
) -> None:
    """Set collision filter and friction of a link's geom."""
    if geom < 0:
        p.setCollisionFilterGroupMask(body, link, 0, 0, physicsClientId=client)
        return
    kind, affinity = int(model.geom_contype[geom]), int(model.geom_conaffinity[geom])
    p.setCollisionFilterGroupMask(body, link, kind, affinity, physicsClientId=client)
    slide, spin, roll = (float(values[geom]) for values in friction)
    p.changeDynamics(
        body, link, lateralFriction=slide, spinningFriction=spin, rollingFriction=roll, physicsClientId=client
    )


def _dry_friction(p: Any, client: int, model: Any, body: int, links: Sequence[Link]) -> None:
    """Turn off the motors that PyBullet puts on every joint: the rest of them is the joint's dry friction."""
    moving = [i for i, link in enumerate(links) if link.joint >= 0]
    if moving:
        dry = [float(model.dof_frictionloss[model.jnt_dofadr[links[i].joint]]) for i in moving]
        p.setJointMotorControlArray(
            body,
            moving,
            p.VELOCITY_CONTROL,
            targetVelocities=[0.0] * len(moving),
            forces=dry,
            physicsClientId=client,
        )


def _shape(p: Any, client: int, model: Any, geom: int) -> int:
    """PyBullet's id of a geom's shape, centred in its own frame; -1 for none."""
    if geom < 0:
        return -1
    kind, size = int(model.geom_type[geom]), model.geom_size[geom].tolist()
    if kind == _PLANE:
        made = p.createCollisionShape(p.GEOM_PLANE, physicsClientId=client)
    elif kind == _BOX:
        made = p.createCollisionShape(p.GEOM_BOX, halfExtents=size, physicsClientId=client)
    elif kind == _MESH:
        vertices = mesh_vertices(model, int(model.geom_dataid[geom])).tolist()
        made = p.createCollisionShape(p.GEOM_MESH, vertices=vertices, physicsClientId=client)
    elif kind == _SPHERE:
        made = p.createCollisionShape(p.GEOM_SPHERE, radius=size[0], physicsClientId=client)
    else:
        shape = p.GEOM_CAPSULE if kind == _CAPSULE else p.GEOM_CYLINDER
        made = p.createCollisionShape(shape, radius=size[0], height=2.0 * size[1], physicsClientId=client)
    return int(made)


def mesh_vertices(model: Any, mesh: int) -> Float[ndarray, "v 3"]:
    first, count = int(model.mesh_vertadr[mesh]), int(model.mesh_vertnum[mesh])
    vertices: Float[ndarray, "v 3"] = model.mesh_vert[first : first + count]
    return vertices
