"""A craft as PyBullet bodies, made from primitives: a cylinder for collisions, arms and rotors
for pictures.
"""

from __future__ import annotations

import math
from typing import Any

from sim.engines.quad.craft import Craft

_FLATNESS = 0.4  # height of the hull over its radius: 2.5 cm over 6 cm for a Crazyflie
_INK, _FRONT, _BACK = [0.1, 0.1, 0.12, 1.0], [0.84, 0.37, 0.0, 1.0], [0.55, 0.55, 0.58, 1.0]
FLOOR_GROUP, DRONE_GROUP = 1, 2  # bits of PyBullet's collision filter


def hull(craft: Craft) -> tuple[float, float]:
    """Radius and height [m] of the cylinder around the craft; a propeller of unknown size has 0.6 arms."""
    arm_m = max(math.hypot(x, y) for x, y in craft.rotors_m)
    radius_m = arm_m + (craft.prop_radius_m or 0.6 * arm_m)
    return radius_m, _FLATNESS * radius_m


def make_shapes(p: Any, client: int, craft: Craft) -> tuple[int, int]:
    """Collision and visual shape, to be shared by all bodies of this craft."""
    radius_m, height_m = hull(craft)
    arm_m = max(math.hypot(x, y) for x, y in craft.rotors_m)
    prop_m = radius_m - arm_m
    touch = p.createCollisionShape(p.GEOM_CYLINDER, radius=radius_m, height=height_m, physicsClientId=client)
    rise_m = 0.5 * height_m
    look = p.createVisualShapeArray(
        shapeTypes=[p.GEOM_BOX, p.GEOM_BOX] + [p.GEOM_CYLINDER] * 4,
        halfExtents=[[0.5 * arm_m, 0.25 * arm_m, 0.2 * arm_m], [0.25 * arm_m, 0.5 * arm_m, 0.12 * arm_m]]
        + [[0] * 3] * 4,
        radii=[0.0, 0.0] + [prop_m] * 4,
        lengths=[0.0, 0.0] + [0.12 * arm_m] * 4,
        visualFramePositions=[[0.0, 0.0, 0.0]] * 2 + [[x, y, rise_m] for x, y in craft.rotors_m],
        rgbaColors=[_INK, _INK] + [_FRONT if x > 0.0 else _BACK for x, _ in craft.rotors_m],
        physicsClientId=client,
    )
    return touch, look


def make_drone(p: Any, client: int, craft: Craft, shapes: tuple[int, int], meets_drones: bool) -> int:
    """A free body with the craft's mass and inertia, and no damping of Bullet's own."""
    body = int(p.createMultiBody(craft.mass_kg, *shapes, physicsClientId=client))
    set_mass(p, client, body, craft.mass_kg, list(craft.inertia_kg_m2))
    p.changeDynamics(body, -1, linearDamping=0.0, angularDamping=0.0, jointDamping=0.0, restitution=0.1,
                     lateralFriction=0.6, rollingFriction=1e-4, physicsClientId=client)  # fmt: skip
    mask = FLOOR_GROUP | (DRONE_GROUP if meets_drones else 0)
    p.setCollisionFilterGroupMask(body, -1, DRONE_GROUP, mask, physicsClientId=client)
    return body


def set_mass(p: Any, client: int, body: int, mass_kg: float, inertia_kg_m2: list[float]) -> None:
    """Set mass and inertia; Bullet would derive the inertia from the collision shape."""
    p.changeDynamics(body, -1, mass=mass_kg, physicsClientId=client)
    p.changeDynamics(body, -1, localInertiaDiagonal=inertia_kg_m2, physicsClientId=client)


def make_floor(p: Any, client: int, floor_m: float) -> int:
    """An endless plane at z = `floor_m`; PyBullet draws it chequered."""
    plane = p.createCollisionShape(p.GEOM_PLANE, physicsClientId=client)
    body = int(p.createMultiBody(0, plane, basePosition=[0.0, 0.0, floor_m], physicsClientId=client))
    p.changeDynamics(body, -1, restitution=0.1, lateralFriction=0.6, physicsClientId=client)
    p.setCollisionFilterGroupMask(body, -1, FLOOR_GROUP, DRONE_GROUP, physicsClientId=client)
    return body
