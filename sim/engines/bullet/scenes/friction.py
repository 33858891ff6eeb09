"""Friction coefficients of single geoms for Bullet, close to MuJoCo's friction of pairs.

MuJoCo takes the larger of two geoms' coefficients, Bullet multiplies sliding ones: the product is split so
that log a_i + log a_j = log max(f_i, f_j), by least squares where pairs contradict each other. For torsional
and rolling friction Bullet takes a_i t_j + a_j t_i, which is linear in t.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy import ndarray

from robo_rl.core.shapes import Float
from sim.engines.bullet.scenes.plan import excluded, is_static

_LEAST = 1e-4  # for a frictionless pair, so that its logarithm is finite
_ROBOT_AND_GROUND = 0.03  # weight of pairs without a free object; grasps and supports of objects matter more


class GeomFriction(NamedTuple):
    """Bullet's coefficients of every geom."""

    sliding: Float[ndarray, " g"]
    spinning_m: Float[ndarray, " g"]
    rolling_m: Float[ndarray, " g"]


class Pair(NamedTuple):
    """Two geoms that may touch, and MuJoCo's coefficients for them."""

    one: int
    other: int
    sliding: float
    spinning_m: float
    rolling_m: float
    weight: float


def split_friction(model: Any) -> GeomFriction:
    """Coefficients of single geoms that reproduce MuJoCo's friction of pairs as well as possible."""
    pairs, count = touching_pairs(model), int(model.ngeom)
    own = 0.5 * np.log(np.maximum(model.geom_friction[:, 0], _LEAST))
    rows = np.zeros((len(pairs), count))
    for row, pair in zip(rows, pairs, strict=True):
        row[[pair.one, pair.other]] = pair.weight
    weight = np.array([pair.weight for pair in pairs])
    missing = np.log([max(pair.sliding, _LEAST) for pair in pairs]) * weight - rows @ own
    sliding = np.exp(own + _solve(rows, missing))
    turning = []
    for target in ([pair.spinning_m for pair in pairs], [pair.rolling_m for pair in pairs]):
        rows = np.zeros((len(pairs), count))
        for row, pair in zip(rows, pairs, strict=True):
            row[pair.one], row[pair.other] = (
                pair.weight * sliding[pair.other],
                pair.weight * sliding[pair.one],
            )
        turning.append(np.maximum(_solve(rows, np.array(target) * weight), 0.0))
    return GeomFriction(sliding, *turning)


def touching_pairs(model: Any) -> list[Pair]:
    """Pairs that may touch by MuJoCo's contact bits, without pairs of fixed parts or of one robot."""
    trees = [_tree(model, int(body)) for body in model.geom_bodyid]
    kind, affinity, apart, pairs = model.geom_contype, model.geom_conaffinity, excluded(model), []
    for i in range(model.ngeom):
        for j in range(i + 1, model.ngeom):
            meets = kind[i] & affinity[j] or kind[j] & affinity[i]
            bodies = sorted((int(model.geom_bodyid[i]), int(model.geom_bodyid[j])))
            if not meets or trees[i] == trees[j] or tuple(bodies) in apart:
                continue
            weight = 1.0 if any(_flies(model, tree) for tree in (trees[i], trees[j])) else _ROBOT_AND_GROUND
            pairs.append(Pair(i, j, *_mujoco(model, i, j), weight))
    return pairs


def _mujoco(model: Any, i: int, j: int) -> tuple[float, float, float]:
    """(sliding, torsional, rolling) coefficients: of the higher priority, else the larger ones."""
    first, second = int(model.geom_priority[i]), int(model.geom_priority[j])
    chosen = [i, j] if first == second else [i if first > second else j]
    slide, spin, roll = model.geom_friction[chosen].max(axis=0).tolist()
    condim = int(model.geom_condim[chosen].max())
    return slide * (condim >= 3), spin * (condim >= 4), roll * (condim >= 6)


def _tree(model: Any, body: int) -> int:
    """First moving ancestor of this body; 0 for fixed bodies."""
    root = 0
    while body > 0:
        if not is_static(model, body):
            root = body
        body = int(model.body_parentid[body])
    return root


def _flies(model: Any, root: int) -> bool:
    return root > 0 and int(model.body_dofnum[root]) == 6


def _solve(rows: Float[ndarray, "p g"], wanted: Float[ndarray, " p"]) -> Float[ndarray, " g"]:
    solution: Float[ndarray, " g"] = np.linalg.lstsq(rows, wanted, rcond=None)[0]
    return solution
