"""Plan of a compiled scene for Bullet: multibodies of links, every colliding geom a link of its own.

Arithmetic on the MuJoCo model only; nothing here imports PyBullet. One geom per link, because Bullet keeps
friction and collision bits per link. A link's frame is at its joint, the base of a free body at its centre of
mass.

Bullet has no armature (the inertia of a motor behind its gear): it is added to the link itself, about the
axis of a hinge or as the mass of a slide. This is exact for the joint, but the joints before it feel it too.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import mujoco
import numpy as np
from numpy import ndarray

from robo_rl.core.shapes import Float
from sim.engines.scene import Scene

FIXED, HINGE, SLIDE = "fixed", "hinge", "slide"
_HINGE, _SLIDE, _FREE = (
    int(getattr(mujoco.mjtJoint, f"mjJNT_{kind}")) for kind in ("HINGE", "SLIDE", "FREE")
)
_HERE = (0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0)

Pose = Float[ndarray, " 7"]  # position [m], quaternion wxyz


@dataclass(frozen=True)
class Inertia:
    """Mass, and moments about the axes of the frame `pose` at the centre of mass, which is relative to the
    link's.
    """

    mass_kg: float = 0.0
    moments_kg_m2: tuple[float, float, float] = (0.0, 0.0, 0.0)
    pose: Pose = field(default_factory=lambda: np.array(_HERE))


@dataclass(frozen=True)
class Link:
    """One link of a multibody; frames relative to the link before it, which `parent` counts from 0, -1 the
    base.
    """

    parent: int
    pose: Pose
    kind: str = FIXED
    axis: tuple[float, float, float] = (0.0, 0.0, 1.0)
    joint: int = -1  # row of the model's joint, -1 for a fixed link
    body: int = -1  # row of the body that this link carries, -1 for none
    inertia: Inertia = field(default_factory=Inertia)
    geom: int = -1  # row of the geom to collide with, -1 for none


@dataclass(frozen=True)
class Multibody:
    """A multibody. Its base is at `pose` in the frame of the body `anchor`: the mount of a robot, or a free
    body.
    """

    anchor: int
    pose: Pose
    joint: int = -1  # row of the free joint, -1 for a fixed base
    inertia: Inertia = field(default_factory=Inertia)
    geom: int = -1  # row of the geom that the base itself is, -1 for none
    links: tuple[Link, ...] = ()


def plan_scene(scene: Scene, mass_scale: Float[ndarray, " nb"] | None = None) -> list[Multibody]:
    """Everything to build, in the order of the model's bodies. The scene has passed `check_scene`."""
    model = scene.model
    scale = np.ones(model.nbody) if mass_scale is None else mass_scale
    parts: list[Multibody] = []
    for body in range(model.nbody):
        if is_static(model, body):
            parts += [Multibody(body, _geom_pose(model, geom), geom=geom) for geom in _geoms(model, body)]
        elif is_static(model, int(model.body_parentid[body])):
            parts.append(_Tree(model, scale).plan(body))
    return parts


def excluded(model: Any) -> set[tuple[int, int]]:
    """Pairs of bodies that the model lets pass through each other, the lower row first."""
    pairs = (divmod(int(signature), 1 << 16) for signature in model.exclude_signature)
    return {(min(pair), max(pair)) for pair in pairs}


def is_static(model: Any, body: int) -> bool:
    """Part of the surroundings or of a fixture: no joint between it and the world."""
    while body > 0:
        if model.body_jntnum[body] > 0:
            return False
        body = int(model.body_parentid[body])
    return True


class _Tree:
    """Links of one tree of bodies, collected depth first, in Bullet's order."""

    def __init__(self, model: Any, mass_scale: Float[ndarray, " nb"]) -> None:
        self._model, self._scale = model, mass_scale
        self._links: list[Link] = []

    def plan(self, root: int) -> Multibody:
        joint = int(self._model.body_jntadr[root])
        if int(self._model.jnt_type[joint]) != _FREE:
            self._add_body(root, -1, _pose(_HERE))
            return Multibody(int(self._model.body_parentid[root]), _pose(_HERE), links=tuple(self._links))
        inertia = self._inertia(root, _pose(_HERE))
        base, links = inertia.pose, self._links
        self._add_inside(root, -1, base)
        if len(links) == 1 and links[0].geom >= 0 and _is_here(links[0].pose):
            return Multibody(root, base, joint, inertia, geom=links[0].geom)  # cheaper than a link of its own
        return Multibody(root, base, joint, inertia, links=tuple(links))

    def _add_body(self, body: int, parent: int, parent_frame: Pose) -> None:
        """Links for its joints, the last with its mass; `parent_frame`: of the parent link, in the parent
        body.
        """
        model, links = self._model, self._links
        here = _pose((*model.body_pos[body], *model.body_quat[body]))  # in the parent body's frame
        first, count = int(model.body_jntadr[body]), int(model.body_jntnum[body])
        frame = _pose(_HERE)  # of the newest link in this body's frame
        if count == 0:
            links.append(
                Link(parent, relative(parent_frame, here), body=body, inertia=self._inertia(body, frame))
            )
            parent = len(links) - 1
        for joint in range(first, first + count):
            new = _pose((*model.jnt_pos[joint], 1.0, 0.0, 0.0, 0.0))
            pose = relative(parent_frame, compose(here, new)) if joint == first else relative(frame, new)
            kind = HINGE if int(model.jnt_type[joint]) == _HINGE else SLIDE
            carries = body if joint == first + count - 1 else -1
            x, y, z = model.jnt_axis[joint].tolist()
            links.append(
                Link(parent, pose, kind, (x, y, z), joint, carries, self._inertia(carries, new, joint))
            )
            parent, frame = len(links) - 1, new
        self._add_inside(body, parent, frame)

    def _add_inside(self, body: int, link: int, frame: Pose) -> None:
        """The body's colliding geoms and its children, below the link that carries it."""
        model = self._model
        self._links += [_geom_link(model, link, geom, frame) for geom in _geoms(model, body)]
        for child in range(body + 1, model.nbody):
            if int(model.body_parentid[child]) == body:
                self._add_body(child, link, frame)

    def _inertia(self, body: int, frame: Pose, joint: int = -1) -> Inertia:
        """Inertia of a body (-1: none) in a link whose frame in the body is `frame`, armature of the joint
        included.
        """
        model = self._model
        mass, moments, pose = 0.0, np.zeros(3), _pose(_HERE)
        if body >= 0:
            mass = float(model.body_mass[body] * self._scale[body])
            moments = model.body_inertia[body] * self._scale[body]
            pose = relative(frame, _pose((*model.body_ipos[body], *model.body_iquat[body])))
        armature = float(model.dof_armature[model.jnt_dofadr[joint]]) if joint >= 0 else 0.0
        if armature > 0.0 and int(model.jnt_type[joint]) == _SLIDE:
            mass += armature
        elif armature > 0.0:
            turn, axis = _rotation(pose), model.jnt_axis[joint]
            values, vectors = np.linalg.eigh(
                turn @ np.diag(moments) @ turn.T + armature * np.outer(axis, axis)
            )
            vectors[:, 2] *= np.linalg.det(vectors)  # a rotation, not a reflection
            moments = np.maximum(values, 0.0)
            mujoco.mju_mat2Quat(pose[3:], vectors.ravel())
        x, y, z = moments.tolist()
        return Inertia(mass, (x, y, z), pose)


def _geom_link(model: Any, parent: int, geom: int, frame: Pose) -> Link:
    return Link(parent, relative(frame, _geom_pose(model, geom)), geom=geom)


def _geom_pose(model: Any, geom: int) -> Pose:
    return _pose((*model.geom_pos[geom], *model.geom_quat[geom]))


def _is_here(pose: Pose) -> bool:
    return bool(np.abs(pose - np.array(_HERE)).max() < 1e-9)


def _geoms(model: Any, body: int) -> list[int]:
    """Rows of its geoms that can touch anything."""
    rows = range(int(model.body_geomadr[body]), int(model.body_geomadr[body]) + int(model.body_geomnum[body]))
    return [i for i in rows if model.geom_contype[i] or model.geom_conaffinity[i]]


def _pose(numbers: Any) -> Pose:
    return np.array(numbers, dtype=np.float64)


def _rotation(pose: Pose) -> Float[ndarray, "3 3"]:
    matrix = np.empty(9)
    mujoco.mju_quat2Mat(matrix, pose[3:])
    return matrix.reshape(3, 3)


def compose(a: Pose, b: Pose) -> Pose:
    """Pose b, given in the frame of a, in the frame of a's parent."""
    out = np.empty(7)
    mujoco.mju_mulPose(out[:3], out[3:], a[:3], a[3:], b[:3], b[3:])
    return out


def relative(a: Pose, b: Pose) -> Pose:
    """b as seen from a, both in one frame."""
    inverse = np.empty(7)
    mujoco.mju_negPose(inverse[:3], inverse[3:], a[:3], a[3:])
    return compose(inverse, b)
