"""Upright cylinders in the arenas of a PyBullet world: fixed bodies, moved when an arena changes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy import ndarray

from robo_rl.core.shapes import Bool, Float, Int
from sim.engines.bullet.body import DRONE_GROUP

PILLAR_GROUP = 4  # bit of PyBullet's collision filter
_BURIED_M = 1.0e3  # depth below the floor for absent cylinders
_HEAP_M = 2.0  # distance between them: overlapping boxes would cost time


class Pillars:
    """`each` cylinders in every arena, of one size, standing on the floor at z = 0."""

    def __init__(
        self,
        p: Any,
        client: int,
        origin_m: Float[ndarray, "3 a"],
        each: int,
        radius_m: float,
        height_m: float,
    ) -> None:
        self._p, self._client, self._origin, self._height_m = p, client, origin_m, height_m
        shape = p.createCollisionShape(
            p.GEOM_CYLINDER, radius=radius_m, height=height_m, physicsClientId=client
        )
        self._axes = np.full((2, origin_m.shape[1], each), np.nan)
        self._heap = _HEAP_M * np.stack(np.divmod(np.arange(each), 8)).astype(float)  # (2, each)
        lying = [[self._place(a, j) for j in range(each)] for a in range(origin_m.shape[1])]
        self._bodies = [[self._body(shape, spot) for spot in row] for row in lying]

    @property
    def bodies(self) -> Int[ndarray, "a each"]:
        """PyBullet ids of the cylinders."""
        return np.array(self._bodies)

    def _body(self, shape: int, spot: list[float]) -> int:
        """Without maximal coordinates a fixed body would be a multi-body, which costs three times as much a
        step.
        """
        p, client = self._p, self._client
        body = int(
            p.createMultiBody(0, shape, basePosition=spot, useMaximalCoordinates=1, physicsClientId=client)
        )
        p.changeDynamics(body, -1, restitution=0.1, lateralFriction=0.6, physicsClientId=client)
        p.setCollisionFilterGroupMask(body, -1, PILLAR_GROUP, DRONE_GROUP, physicsClientId=client)
        return body

    def place_cylinders(self, axes_m: Float[ndarray, "2 a each"], there: Bool[ndarray, "a each"]) -> None:
        """Move the cylinders to these axes; absent ones go below the floor. Cylinders that stay are not
        touched.
        """
        axes = np.where(there, axes_m, np.nan)
        same = (axes == self._axes) | (np.isnan(axes) & np.isnan(self._axes))
        self._axes = axes
        level = [0.0, 0.0, 0.0, 1.0]
        for arena, j in np.argwhere(~same.all(0)).tolist():
            self._p.resetBasePositionAndOrientation(
                self._bodies[arena][j], self._place(arena, j), level, physicsClientId=self._client
            )

    def _place(self, arena: int, j: int) -> list[float]:
        axis = self._axes[:, arena, j]
        if np.isnan(axis).any():
            spot = [*self._heap[:, j].tolist(), -_BURIED_M]
        else:
            spot = [*axis.tolist(), 0.5 * self._height_m]
        return [a + b for a, b in zip(spot, self._origin[:, arena].tolist(), strict=True)]
