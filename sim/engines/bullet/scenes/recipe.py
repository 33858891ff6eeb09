"""Everything that one world is built from: plan, friction, servos and weights, with an episode's changes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy import ndarray

from robo_rl.core.shapes import Float
from sim.engines.bullet.scenes.friction import GeomFriction, split_friction
from sim.engines.bullet.scenes.plan import Multibody, plan_scene
from sim.engines.bullet.scenes.servo import ServoGains, gains
from sim.engines.scene import Scene


@dataclass(frozen=True)
class Pull:
    """A force [N] at the centre of mass of one link (-1: the base) of one multibody."""

    part: int
    link: int
    force_n: tuple[float, float, float]


@dataclass(frozen=True)
class Recipe:
    """Build parameters of a world. `gravity_m_s2` is Bullet's own; `pulls` is the difference to MuJoCo's
    gravity.
    """

    parts: tuple[Multibody, ...]
    friction: GeomFriction
    gains: ServoGains
    gravity_m_s2: tuple[float, float, float]
    pulls: tuple[Pull, ...]
    changes: Mapping[str, Float[ndarray, "..."]]  # that it was made with


@lru_cache(maxsize=8)
def _split(scene: Scene) -> GeomFriction:
    """Friction coefficients, computed once for all worlds and episodes of a scene."""
    return split_friction(scene.model)


def make_recipe(scene: Scene, changes: Mapping[str, Float[ndarray, "..."]] | None = None) -> Recipe:
    """Recipe of one world; changes as in `sim.engines.changes`, without the first axis."""
    model, given = scene.model, changes or {}
    mass = np.asarray(given.get("mass_scale", np.ones(model.nbody)), dtype=np.float64)
    servos = gains(
        scene,
        given.get("kp_scale", np.ones(model.nu)),
        given.get("kv_scale", np.ones(model.nu)),
        given.get("damping_scale", np.ones(model.nv)),
        given.get("strength_scale", np.ones(model.nu)),
        given.get("no_load_scale", np.ones(model.nu)),
    )
    parts = tuple(plan_scene(scene, mass))
    root = math.sqrt(float(given.get("friction_scale", 1.0)))  # of a product, each factor has the root
    slide, spin, roll = _split(scene)
    gravity = model.opt.gravity.copy()
    ways = (
        (np.zeros(3), _pulls(scene, parts, mass, np.zeros(3))),
        (gravity, _pulls(scene, parts, mass, gravity)),
    )
    own, pulls = min(ways, key=lambda way: len(way[1]))
    x, y, z = own.tolist()
    return Recipe(
        parts, GeomFriction(slide * root, spin / root, roll / root), servos, (x, y, z), pulls, given
    )


def _pulls(
    scene: Scene, parts: tuple[Multibody, ...], mass_scale: ndarray, own_m_s2: Float[ndarray, " 3"]
) -> tuple[Pull, ...]:
    """Corrections to Bullet's gravity, which acts on armature and on bodies with compensated
    weight as well.
    """
    model, pulls = scene.model, []
    for i, part in enumerate(parts):
        carried = [(-1, part.anchor, part.inertia.mass_kg)] if part.joint >= 0 else []
        carried += [(k, link.body, link.inertia.mass_kg) for k, link in enumerate(part.links)]
        for link, body, bullet_kg in carried:
            weight_kg = 0.0
            if body >= 0:
                weight_kg = float(
                    model.body_mass[body] * mass_scale[body] * (1.0 - model.body_gravcomp[body])
                )
            force = weight_kg * model.opt.gravity - bullet_kg * own_m_s2
            if np.abs(force).max() > 1e-12:
                x, y, z = force.tolist()
                pulls.append(Pull(i, link, (x, y, z)))
    return tuple(pulls)
