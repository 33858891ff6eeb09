"""One world in one PyBullet client of its own, built anew at every start.

PyBullet remembers: contact points, impulses of the step before, the order in which bodies met. Bodies that are put back
carry all of it into the next episode; a world made from nothing does not, and costs no more than restoring a saved one.
"""

from __future__ import annotations

import weakref
from typing import Any

import mujoco
import numpy as np
from jaxtyping import Float
from numpy import ndarray

from robo_rl.core.errors import ConfigError
from sim.engines.bullet.client import load_pybullet
from sim.engines.bullet.scenes.build import build, start_world
from sim.engines.bullet.scenes.plan import Pose, compose, relative
from sim.engines.bullet.scenes.recipe import Recipe
from sim.engines.bullet.scenes.servo import torques
from sim.engines.scene import Scene


class World:
    """Owns a connection to PyBullet; closed with `close` or when nobody holds it any more."""

    def __init__(self, scene: Scene) -> None:
        self._p = p = load_pybullet()
        self._scene = scene
        self._client = int(p.connect(p.DIRECT))
        if self._client < 0:
            raise ConfigError("PyBullet opens no more worlds: it holds about a thousand. Use fewer environments.")
        self.close = weakref.finalize(self, p.disconnect, self._client)
        self._ids: list[int] = []

    def begin(
        self, recipe: Recipe, qpos: Float[ndarray, " nq"], qvel: Float[ndarray, " nv"], bodies: Float[ndarray, "nb 7"]
    ) -> None:
        """Build it, with its bodies at these poses [m, wxyz], which belong to qpos and to the fixtures."""
        p, client, model = self._p, self._client, self._scene.model
        self._recipe = recipe
        start_world(client, self._scene.timestep_s / recipe.gains.steps)
        p.setGravity(*recipe.gravity_m_s2, physicsClientId=client)
        self._ids = []
        for part in recipe.parts:
            base = compose(bodies[part.anchor], part.pose)
            body = build(client, model, part, base, recipe.rub)
            self._ids.append(body)
            for i, link in enumerate(part.links):
                if link.joint >= 0:
                    at, dof = int(model.jnt_qposadr[link.joint]), int(model.jnt_dofadr[link.joint])
                    position = float(qpos[at] - model.qpos0[at])
                    p.resetJointState(body, i, position, float(qvel[dof]), physicsClientId=client)
            if part.joint >= 0:
                move = _to_bullet(bodies[part.anchor], base, qvel[int(model.jnt_dofadr[part.joint]) :][:6])
                p.resetBaseVelocity(body, *move, physicsClientId=client)
        self._index()

    def step(self, bias: list[float], steps: int) -> None:
        """So many steps of the scene; `bias` as from `Gains.bias`, one row."""
        p, client, gains = self._p, self._client, self._recipe.gains
        rows = [(*robot, [bias[i] for i in mine], [gains.rows[i] for i in mine]) for *robot, mine in self._driven]
        get, put, step, push = p.getJointStates, p.setJointMotorControlArray, p.stepSimulation, self._push
        for _ in range(steps * gains.steps):
            for body, joints, offset, row in rows:
                force = torques(get(body, joints, physicsClientId=client), offset, row)
                put(body, joints, p.TORQUE_CONTROL, forces=force, physicsClientId=client)
            push()
            step(physicsClientId=client)

    def read(self, qpos: Float[ndarray, " nq"], qvel: Float[ndarray, " nv"]) -> None:
        """Write where everything is into these rows."""
        p, client, model = self._p, self._client, self._scene.model
        for body, joints, at, dof in self._jointed:
            states = np.array([state[:2] for state in p.getJointStates(body, joints, physicsClientId=client)])
            qpos[at], qvel[dof] = states[:, 0] + model.qpos0[at], states[:, 1]
        for body, at, dof, inertial in self._flying:
            position, (x, y, z, w) = p.getBasePositionAndOrientation(body, physicsClientId=client)
            base = np.array((*position, w, x, y, z))
            frame = compose(base, inertial)
            qpos[at : at + 7] = frame
            qvel[dof : dof + 6] = _from_bullet(frame, base, p.getBaseVelocity(body, physicsClientId=client))

    def touch(self) -> list[float]:
        """Normal force [N] on each touch sensor's body in the last step."""
        p, client = self._p, self._client
        return [
            sum(
                point[9]
                for body, link in links
                for point in p.getContactPoints(bodyA=body, linkIndexA=link, physicsClientId=client)
            )
            for links in self._touch
        ]

    def _push(self) -> None:
        p, client = self._p, self._client
        for body, link, force in self._pulls:
            if link < 0:
                centre = p.getBasePositionAndOrientation(body, physicsClientId=client)[0]
            else:
                centre = p.getLinkState(body, link, computeForwardKinematics=1, physicsClientId=client)[0]
            p.applyExternalForce(body, link, force, centre, p.WORLD_FRAME, physicsClientId=client)

    def _index(self) -> None:
        """Where things are in PyBullet, and in MuJoCo's arrays."""
        model, recipe = self._scene.model, self._recipe
        self._pulls = [(self._ids[pull.part], pull.link, pull.force_n) for pull in recipe.pulls]
        self._jointed, self._driven, self._flying = [], [], []
        links: dict[int, list[tuple[int, int]]] = {}  # that touch, by body
        order = {joint: i for i, joint in enumerate(recipe.gains.joints)}
        for body, part in zip(self._ids, recipe.parts, strict=True):
            joints = [(i, link.joint) for i, link in enumerate(part.links) if link.joint >= 0]
            if joints:
                rows = [joint for _, joint in joints]
                self._jointed.append((body, [i for i, _ in joints], model.jnt_qposadr[rows], model.jnt_dofadr[rows]))
            driven = [(i, order[joint]) for i, joint in joints if joint in order]
            if driven:
                self._driven.append((body, [i for i, _ in driven], [row for _, row in driven]))
            if part.joint >= 0:
                at, dof = int(model.jnt_qposadr[part.joint]), int(model.jnt_dofadr[part.joint])
                self._flying.append((body, at, dof, relative(part.pose, np.array((0.0, 0, 0, 1, 0, 0, 0)))))
            for i, geom in ((-1, part.geom), *((i, link.geom) for i, link in enumerate(part.links))):
                if geom >= 0:
                    links.setdefault(int(model.geom_bodyid[geom]), []).append((body, i))
        sites = [int(model.sensor(name).objid[0]) for name in self._scene.touch]
        self._touch = [links.get(int(model.site_bodyid[site]), []) for site in sites]


def _to_bullet(frame: Pose, base: Pose, qvel: ndarray) -> tuple[list[float], list[float]]:
    """(linear at the centre of mass, angular), both in the world: MuJoCo's are of the body's origin and in its axes."""
    spin = _turned(frame, qvel[3:])
    return (qvel[:3] + np.cross(spin, base[:3] - frame[:3])).tolist(), spin.tolist()


def _from_bullet(frame: Pose, base: Pose, move: Any) -> Float[ndarray, " 6"]:
    velocity, spin = np.array(move)
    back = frame.copy()
    back[4:] *= -1.0
    return np.concatenate([velocity + np.cross(spin, frame[:3] - base[:3]), _turned(back, spin)])


def _turned(frame: Pose, vector: ndarray) -> Float[ndarray, " 3"]:
    out = np.empty(3)
    mujoco.mju_rotVecQuat(out, vector, frame[3:])
    return out
