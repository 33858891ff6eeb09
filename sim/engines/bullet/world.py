"""Many drones in one PyBullet world: rigid bodies and contacts under gravity and given forces.

Columns are drones, numbers are double precision, and every drone has its own origin: arenas of `per_arena`
drones stand far apart on a grid. One shared world costs a third of a world per drone.
"""

from __future__ import annotations

import math
import weakref

import numpy as np
from numpy import ndarray

from robo_rl.core.errors import ConfigError
from robo_rl.core.shapes import Bool, Float, Int
from sim.engines.bullet.body import make_drone, make_floor, make_shapes, set_mass
from sim.engines.bullet.camera import Picture, look_from, onboard_view
from sim.engines.bullet.client import load_pybullet
from sim.engines.bullet.motion import Motion, rotation, to_body, to_world
from sim.engines.bullet.pillars import Pillars
from sim.engines.quad.craft import GRAVITY_M_S2, Craft

SPACING_M = 50.0  # between arenas; drones of different arenas never touch, whatever the distance


class BulletWorld:
    """Owner of the connection to PyBullet; closed by `close` or by garbage collection."""

    def __init__(
        self, craft: Craft, num: int, substep_s: float, *, floor_m: float | None = 0.0, per_arena: int = 1
    ) -> None:
        if num < 1 or per_arena < 1 or num % per_arena:
            raise ConfigError(
                f"{num} drones cannot be shared out to arenas of {per_arena}: give a multiple of it."
            )
        if not 0.0 < substep_s <= 1.0 / 60.0:
            raise ConfigError(f"substep_s = {substep_s:g} is out of bounds: above 0 and at most 1/60 s.")
        self.craft, self.num, self.per_arena, self.floor_m = craft, num, per_arena, floor_m
        self._p = p = load_pybullet()
        self._client = client = int(p.connect(p.DIRECT))
        self._finalizer = weakref.finalize(self, p.disconnect, client)
        p.setGravity(0.0, 0.0, -GRAVITY_M_S2, physicsClientId=client)
        p.setTimeStep(substep_s, physicsClientId=client)
        p.setPhysicsEngineParameter(deterministicOverlappingPairs=1, physicsClientId=client)
        self._floor = None if floor_m is None else make_floor(p, client, floor_m)
        self._pillars: Pillars | None = None
        shapes = make_shapes(p, client, craft)
        self._bodies = [make_drone(p, client, craft, shapes, per_arena > 1) for _ in range(num)]
        arena, side = np.arange(num) // per_arena, math.ceil(math.sqrt(num / per_arena))
        self._origin = SPACING_M * np.stack([arena % side, arena // side, 0.0 * arena])

    def close(self) -> None:
        self._finalizer()

    def set_masses(self, mass_kg: Float[ndarray, " n"], inertia_kg_m2: Float[ndarray, "3 n"]) -> None:
        for body, mass, inertia in zip(self._bodies, mass_kg.tolist(), inertia_kg_m2.T.tolist(), strict=True):
            set_mass(self._p, self._client, body, mass, inertia)

    def place(self, motion: Motion, drones: Int[ndarray, " k"] | None = None) -> None:
        """Put drones (all by default) at these columns, with their velocities."""
        chosen = np.arange(self.num) if drones is None else drones
        there = motion.columns(chosen)
        position = (there.position_m + self._origin[:, chosen]).T.tolist()
        quat = there.quat_wxyz[[1, 2, 3, 0]].T.tolist()  # PyBullet's are xyzw
        velocity, spin = there.velocity_m_s.T.tolist(), to_world(there.turn, there.rate_rad_s).T.tolist()
        p, client = self._p, self._client
        for i, *pose, v, w in zip(chosen.tolist(), position, quat, velocity, spin, strict=True):
            p.resetBasePositionAndOrientation(self._bodies[i], *pose, physicsClientId=client)
            p.resetBaseVelocity(self._bodies[i], v, w, physicsClientId=client)

    def motion(self) -> Motion:
        """Motion of all drones."""
        poses, moves, client = self._p.getBasePositionAndOrientation, self._p.getBaseVelocity, self._client
        parts = [(*poses(i, physicsClientId=client), *moves(i, physicsClientId=client)) for i in self._bodies]
        rows = np.array([(*a, *b, *c, *d) for a, b, c, d in parts]).T
        quat = rows[[6, 3, 4, 5]]
        turn = rotation(quat)
        return Motion(rows[0:3] - self._origin, quat, rows[7:10], to_body(turn, rows[10:13]), turn)

    def step(self, force_n: Float[ndarray, "3 n"], torque_nm: Float[ndarray, "3 n"]) -> None:
        """One sub-step under these forces at the centres of mass and torques, both in body axes."""
        p, client, here = self._p, self._client, (0.0, 0.0, 0.0)
        for body, force, torque in zip(self._bodies, force_n.T.tolist(), torque_nm.T.tolist(), strict=True):
            p.applyExternalForce(body, -1, force, here, p.LINK_FRAME, physicsClientId=client)
            p.applyExternalTorque(body, -1, torque, p.LINK_FRAME, physicsClientId=client)
        p.stepSimulation(physicsClientId=client)

    def touching(self) -> Bool[ndarray, " n"]:
        """Mask of the drones in contact with the floor or with another drone."""
        p, client = self._p, self._client
        return np.array([bool(p.getContactPoints(body, physicsClientId=client)) for body in self._bodies])

    def place_cylinders(
        self, axes_m: Float[ndarray, "2 a m"], there: Bool[ndarray, "a m"], radius_m: float, height_m: float
    ) -> None:
        """Place cylinders in every arena, on the floor at z = 0; number and size must stay the same."""
        if self._pillars is None:
            origin = self._origin[:, :: self.per_arena]
            self._pillars = Pillars(self._p, self._client, origin, axes_m.shape[2], radius_m, height_m)
        self._pillars.place_cylinders(axes_m, there)

    def pressed(self) -> Bool[ndarray, "3 n"]:
        """Masks of the drones pushed in the last sub-step by a drone, by a cylinder, by the floor.

        Bullet reports contact points from some centimetres on, before bodies touch: points without force and
        overlap are ignored.
        """
        found = self._p.getContactPoints(physicsClientId=self._client)
        pairs = {(point[1], point[2]) for point in found if point[9] > 0.0 or point[8] <= 0.0}
        drone = {body: i for i, body in enumerate(self._bodies)} if pairs else {}
        pressed = np.zeros((3, self.num), dtype=bool)
        for pair in pairs:
            for body, other in (pair, pair[::-1]):
                if body in drone:
                    pressed[0 if other in drone else 2 if other == self._floor else 1, drone[body]] = True
        return pressed

    def camera(self, drone: int, width: int = 160, height: int = 120, fov_deg: float = 60.0) -> Picture:
        """Picture of a camera at the front of this drone, along the body's x axis."""
        here = self.motion()
        eye, target, up = onboard_view(self.craft, here.position_m[:, drone], here.turn[:, :, drone])
        return self.look(drone, eye, target, up, width, height, fov_deg)

    def look(
        self,
        drone: int,
        eye_m: ndarray,
        target_m: ndarray,
        up: ndarray,
        width: int,
        height: int,
        fov_deg: float = 60.0,
    ) -> Picture:
        """Picture from any place in this drone's arena. Segmentation: 0 sky, 1 floor, 2 + k drone k of the
        world.
        """
        origin = self._origin[:, drone]
        seen = look_from(self._p, self._client, eye_m + origin, target_m + origin, up, width, height, fov_deg)
        names = np.ones(max(self._bodies) + 2, dtype=np.int64)
        names[self._bodies] = 2 + np.arange(self.num)
        names[-1] = 0  # PyBullet returns -1 for the sky
        return seen._replace(segmentation=names[seen.segmentation])
