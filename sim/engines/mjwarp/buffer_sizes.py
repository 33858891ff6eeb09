"""Sizes of MuJoCo Warp's fixed buffers for a scene, and the number of worlds that fit into a GPU."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any, NamedTuple

import mujoco
import numpy as np
from numpy import ndarray

from robo_rl.core.errors import EnvError
from robo_rl.core.shapes import Int

_GEOM = mujoco.mjtGeom
# Most contacts of one pair of shapes; pairs not listed (meshes, cylinders) have at most _CONTACTS_OF_OTHERS.
_CONTACTS = {
    (int(_GEOM.mjGEOM_PLANE), int(_GEOM.mjGEOM_SPHERE)): 1,
    (int(_GEOM.mjGEOM_PLANE), int(_GEOM.mjGEOM_CAPSULE)): 2,
    (int(_GEOM.mjGEOM_PLANE), int(_GEOM.mjGEOM_ELLIPSOID)): 1,
    (int(_GEOM.mjGEOM_PLANE), int(_GEOM.mjGEOM_BOX)): 4,
    (int(_GEOM.mjGEOM_SPHERE), int(_GEOM.mjGEOM_SPHERE)): 1,
    (int(_GEOM.mjGEOM_SPHERE), int(_GEOM.mjGEOM_CAPSULE)): 1,
    (int(_GEOM.mjGEOM_SPHERE), int(_GEOM.mjGEOM_BOX)): 1,
    (int(_GEOM.mjGEOM_CAPSULE), int(_GEOM.mjGEOM_CAPSULE)): 2,
    (int(_GEOM.mjGEOM_CAPSULE), int(_GEOM.mjGEOM_BOX)): 2,
    (int(_GEOM.mjGEOM_BOX), int(_GEOM.mjGEOM_BOX)): 8,
}
_CONTACTS_OF_OTHERS = 8
_CROWD = 64  # contacts of a world above which not all shapes are assumed to touch at once
_CONTACTS_PER_SHAPE = (
    8  # in a crowd, such as grains in a heap: a sphere among equal ones touches 12, each shared by two
)


class BufferSizes(NamedTuple):
    """Buffer sizes per world."""

    contacts: int
    rows: int  # constraints: rows of the solver's matrix


def buffer_sizes(model: Any, pairs: Int[ndarray, "p 2"], contacts: int | None = None) -> BufferSizes:
    """Buffer sizes for all pairs of shapes touching at once; less in a crowd.

    model: mujoco.MjModel. pairs: geoms that may touch. contacts: replaces the estimate.
    """
    low, high = np.sort(model.geom_type[pairs], axis=1).T if len(pairs) else ((), ())
    most = [_CONTACTS.get((int(a), int(b)), _CONTACTS_OF_OTHERS) for a, b in zip(low, high, strict=True)]
    if contacts is None:
        moving = int((model.body_weldid[model.geom_bodyid] != 0).sum())
        contacts = min(sum(most), max(_CROWD, _CONTACTS_PER_SHAPE * moving))
    pyramid = int(model.opt.cone) == int(mujoco.mjtCone.mjCONE_PYRAMIDAL)
    dims = model.geom_condim[pairs].max(axis=1) if len(pairs) else np.zeros(0, int)
    rows = np.where(dims == 1, 1, 2 * (dims - 1) if pyramid else dims).astype(int)
    of_contacts = sorted(np.repeat(rows, most).tolist(), reverse=True)
    # For more contacts than the pairs can make, each extra one counts as the largest.
    widest = of_contacts[0] if of_contacts else 0
    wanted = sum(of_contacts[:contacts]) + widest * max(0, contacts - len(of_contacts))
    return BufferSizes(max(1, contacts), max(1, wanted + _rows_of_joints(model)))


def _rows_of_joints(model: Any) -> int:
    """Rows of limits, dry friction and equalities, all active; a weld, the largest equality, has six."""
    limits = int(model.jnt_limited.sum()) + int(model.tendon_limited.sum())
    friction = int((model.dof_frictionloss > 0).sum()) + int((model.tendon_frictionloss > 0).sum())
    return limits + friction + 6 * int(model.neq)


def size_bytes(tree: Any) -> int:
    """Memory of all arrays in a (nested) dataclass of Warp arrays."""
    total = 0
    for field in fields(tree):
        value = getattr(tree, field.name)
        if is_dataclass(value):
            total += size_bytes(value)
        elif hasattr(value, "capacity"):
            total += int(value.capacity)
    return total


def check_fits(num_envs: int, bytes_per_world: float, free_bytes: int) -> None:
    """Raise EnvError with the number of worlds that would fit."""
    if num_envs * bytes_per_world > free_bytes:
        raise too_large(num_envs, bytes_per_world, free_bytes)


def too_large(num_envs: int, bytes_per_world: float, free_bytes: int) -> EnvError:
    most = int(0.9 * free_bytes / bytes_per_world)  # a tenth stays free for the allocators
    return EnvError(
        f"The GPU is out of memory: {num_envs} environments need about "
        f"{num_envs * bytes_per_world / 2**30:.1f} GiB, {free_bytes / 2**30:.1f} GiB are free. About {most} "
        f"would fit: run with num_envs={most} or less."
    )
