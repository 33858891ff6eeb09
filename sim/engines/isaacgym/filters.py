"""MuJoCo's contact rule as Isaac Gym's filters: two shapes that share a bit do not touch."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import mujoco

from robo_rl.core.errors import ConfigError

_BITS = 31


def may_touch(model: Any, one: int, other: int) -> bool:
    """MuJoCo's own filter for two geoms: bits of contype and conaffinity, same body, parent and child,
    exclusions.
    """
    a, b = int(model.geom_bodyid[one]), int(model.geom_bodyid[other])
    if not (
        model.geom_contype[one] & model.geom_conaffinity[other]
        or model.geom_contype[other] & model.geom_conaffinity[one]
    ):
        return False
    welded = model.body_weldid
    if welded[a] == welded[b]:
        return False
    excluded = {(int(pair) >> 16, int(pair) & 0xFFFF) for pair in model.exclude_signature}
    if (a, b) in excluded or (b, a) in excluded:
        return False
    if int(model.opt.disableflags) & int(mujoco.mjtDisableBit.mjDSBL_FILTERPARENT):
        return True
    parent_of_a, parent_of_b = welded[model.body_parentid[welded[a]]], welded[model.body_parentid[welded[b]]]
    # The world is no parent in this sense: what is mounted on it may touch it.
    return not (
        (parent_of_a == welded[b] and welded[b] != 0) or (parent_of_b == welded[a] and welded[a] != 0)
    )


def collision_filters(model: Any) -> dict[int, int]:
    """Geom -> filter, for those that can touch anything. Raises ConfigError when 31 bits do not suffice.

    Shapes with the same partners form a class; every two classes that do not touch share a bit of their own.
    """
    geoms = [g for g in range(model.ngeom) if model.geom_contype[g] or model.geom_conaffinity[g]]
    classes: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for g in geoms:
        classes[tuple(h for h in geoms if h != g and may_touch(model, g, h))].append(g)
    members = list(classes.values())
    filters = dict.fromkeys(geoms, 0)
    bit = 0
    for i, some in enumerate(members):
        for others in members[i:]:
            alone = some is others and len(some) == 1  # nobody to keep apart
            if alone or may_touch(model, some[0], others[-1]):
                continue
            if bit == _BITS:
                raise ConfigError(
                    "The engine isaacgym cannot keep apart so many kinds of shapes: 31 pairs at most."
                )
            for g in {*some, *others}:
                filters[g] |= 1 << bit
            bit += 1
    return filters
