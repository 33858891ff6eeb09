"""One world in a PyBullet client of its own, built anew at every start.

PyBullet has hidden state: contact points, impulses of the last step, the order in which bodies met. Bodies
that are moved back carry it into the next episode; a new world does not, and costs no more than restoring a
saved one.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from itertools import product
from typing import Any

from numpy import ndarray

from robo_rl.core.errors import ConfigError
from robo_rl.core.shapes import Float
from sim.engines.bullet.client import load_pybullet
from sim.engines.bullet.scenes.build import build, start_world
from sim.engines.bullet.scenes.frames import to_bullet
from sim.engines.bullet.scenes.motors import BulletMotors
from sim.engines.bullet.scenes.plan import compose, excluded
from sim.engines.bullet.scenes.recipe import Recipe
from sim.engines.bullet.scenes.servo import torques
from sim.engines.scene import Scene


class SceneWorld:
    """Owns a connection to PyBullet; closed by `close` or by garbage collection."""

    def __init__(self, scene: Scene) -> None:
        self._p = p = load_pybullet()
        self._scene = scene
        self._client = int(p.connect(p.DIRECT))
        if self._client < 0:
            raise ConfigError(
                "PyBullet opens no more worlds: it holds about a thousand. Use fewer environments."
            )
        self.close = weakref.finalize(self, p.disconnect, self._client)
        self._ids: list[int] = []

    def begin(
        self,
        recipe: Recipe,
        qpos: Float[ndarray, " nq"],
        qvel: Float[ndarray, " nv"],
        bodies: Float[ndarray, "nb 7"],
        ctrl: Float[ndarray, " nu"],
    ) -> None:
        """Build it with its bodies at these poses [m, wxyz], which belong to qpos and the fixtures, and these
        servo commands.
        """
        p, client, model = self._p, self._client, self._scene.model
        self._recipe = recipe
        step_s = self._scene.timestep_s / recipe.gains.steps
        start_world(client, step_s)
        self._motors = None if self._scene.motors is None else BulletMotors(self._scene, recipe, step_s, ctrl)
        p.setGravity(*recipe.gravity_m_s2, physicsClientId=client)
        self._ids = []
        for part in recipe.parts:
            base = compose(bodies[part.anchor], part.pose)
            body = build(client, model, part, base, recipe.friction)
            self._ids.append(body)
            for i, link in enumerate(part.links):
                if link.joint >= 0:
                    at, dof = int(model.jnt_qposadr[link.joint]), int(model.jnt_dofadr[link.joint])
                    position = float(qpos[at] - model.qpos0[at])
                    p.resetJointState(body, i, position, float(qvel[dof]), physicsClientId=client)
            if part.joint >= 0:
                dof = int(model.jnt_dofadr[part.joint])
                move = to_bullet(bodies[part.anchor], qvel[dof : dof + 6], part.pose)
                p.resetBaseVelocity(body, *move, physicsClientId=client)
        self._index()

    def step(self, ctrl: Float[ndarray, " nu"], steps: int) -> None:
        """Advance by this many steps of the scene with these commands."""
        p, client, gains = self._p, self._client, self._recipe.gains
        rows = self._servos(gains.bias(ctrl), gains.rows)
        get, put, step, push = p.getJointStates, p.setJointMotorControlArray, p.stepSimulation, self._push
        for _ in range(steps * gains.steps):
            moving = [get(body, joints, physicsClientId=client) for body, joints, _ in self._driven]
            if self._motors is not None:
                rows = self._servos(*self._motors.advance(ctrl, moving, [mine for *_, mine in self._driven]))
            for states, (body, joints, offset, row) in zip(moving, rows, strict=True):
                forces, brakes = torques(states, offset, row)
                put(body, joints, p.TORQUE_CONTROL, forces=forces, physicsClientId=client)
                put(body, joints, p.VELOCITY_CONTROL, forces=brakes, physicsClientId=client)
            push()
            step(physicsClientId=client)

    def _servos(self, bias: list[float], rows: Sequence[tuple[float, ...]]) -> list[tuple[Any, ...]]:
        """Body, its joints, the commanded part of their torques, and their parameters, as `torques` takes
        them.
        """
        return [
            (body, joints, [bias[i] for i in mine], [rows[i] for i in mine])
            for body, joints, mine in self._driven
        ]

    def read(self) -> tuple[list[tuple[float, float]], list[tuple[float, ...]]]:
        """Position and speed of every joint, in the order of the links; rows of free bodies, for
        `frames.to_mujoco`.
        """
        p, client = self._p, self._client
        joints = [
            state[:2]
            for body, mine in self._jointed
            for state in p.getJointStates(body, mine, physicsClientId=client)
        ]
        free = []
        for body in self._flying:
            position, quat = p.getBasePositionAndOrientation(body, physicsClientId=client)
            velocity, spin = p.getBaseVelocity(body, physicsClientId=client)
            free.append((*position, *quat, *velocity, *spin))
        return joints, free

    def touch(self) -> list[float]:
        """Normal force [N] on each touch sensor's body in the last step."""
        p, client = self._p, self._client
        points = [
            [p.getContactPoints(bodyA=body, linkIndexA=link, physicsClientId=client) for body, link in links]
            for links in self._touch
        ]
        return [sum((point[9] for each in mine for point in each), start=0.0) for mine in points]

    def _push(self) -> None:
        p, client = self._p, self._client
        for body, link, force in self._pulls:
            if link < 0:
                centre = p.getBasePositionAndOrientation(body, physicsClientId=client)[0]
            else:
                centre = p.getLinkState(body, link, computeForwardKinematics=1, physicsClientId=client)[0]
            p.applyExternalForce(body, link, force, centre, p.WORLD_FRAME, physicsClientId=client)

    def _index(self) -> None:
        """Prepare PyBullet ids for what is read and commanded at every step, and collision exclusions."""
        model, recipe = self._scene.model, self._recipe
        self._pulls = [(self._ids[pull.part], pull.link, pull.force_n) for pull in recipe.pulls]
        self._jointed, self._driven, self._flying = [], [], []
        links: dict[int, list[tuple[int, int]]] = {}  # that touch, by body
        order = {joint: i for i, joint in enumerate(recipe.gains.joints)}
        for body, part in zip(self._ids, recipe.parts, strict=True):
            joints = [(i, link.joint) for i, link in enumerate(part.links) if link.joint >= 0]
            if joints:
                self._jointed.append((body, [i for i, _ in joints]))
            driven = [(i, order[joint]) for i, joint in joints if joint in order]
            if driven:
                self._driven.append((body, [i for i, _ in driven], [row for _, row in driven]))
            if part.joint >= 0:
                self._flying.append(body)
            for i, geom in ((-1, part.geom), *((i, link.geom) for i, link in enumerate(part.links))):
                if geom >= 0:
                    links.setdefault(int(model.geom_bodyid[geom]), []).append((body, i))
        for one, other in excluded(model):
            for a, b in product(links.get(one, []), links.get(other, [])):
                self._p.setCollisionFilterPair(a[0], b[0], a[1], b[1], 0, physicsClientId=self._client)
        sites = [int(model.sensor(name).objid[0]) for name in self._scene.touch]
        self._touch = [links.get(int(model.site_bodyid[site]), []) for site in sites]
