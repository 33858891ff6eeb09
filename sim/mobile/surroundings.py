"""Surroundings of a base: boxes and posts (upright cylinders) of a scene, as laser and bumper measure them.

Geometry in the plane at the laser's height, a pure function of body poses: the same in every engine. g =
shapes, r = rays.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import mujoco
import torch
from torch import Tensor

from robo_rl.core.shapes import Float
from sim.bodies.rotation import yaw_of
from sim.engines.protocol import Physics
from sim.engines.scene import Scene

_BOX, _CYLINDER = int(mujoco.mjtGeom.mjGEOM_BOX), int(mujoco.mjtGeom.mjGEOM_CYLINDER)


class Shapes(NamedTuple):
    """Shapes of n worlds. Boxes come first; a post's heading is not used."""

    m: Float[Tensor, "n g 2"]
    yaw_rad: Float[Tensor, "n g"]
    box_half_m: Float[Tensor, "b 2"]
    post_m: Float[Tensor, " p"]  # radius; b + p = g


class Surroundings:
    """Colliding fixed and placed bodies of a scene at a height."""

    def __init__(self, scene: Scene, height_m: float, like: Tensor) -> None:
        model, data = scene.model, mujoco.MjData(scene.model)
        mujoco.mj_kinematics(model, data)
        rows = [i for i in range(model.ngeom) if _stands(model, data, i, height_m)]
        boxes = [i for i in rows if int(model.geom_type[i]) == _BOX]
        posts = [i for i in rows if int(model.geom_type[i]) == _CYLINDER]
        order = boxes + posts
        self._bodies = torch.tensor(model.geom_bodyid[order], dtype=torch.long, device=like.device)
        self._offset_m = like.new_tensor(model.geom_pos[order][:, :2])
        self._turn_rad = yaw_of(like.new_tensor(model.geom_quat[order]))
        self._box_half_m = like.new_tensor(model.geom_size[boxes][:, :2])
        self._post_m = like.new_tensor(model.geom_size[posts][:, 0])

    def shapes(self, physics: Physics) -> Shapes:
        yaw = yaw_of(physics.body_quat[:, self._bodies])
        c, s = yaw.cos(), yaw.sin()
        x, y = self._offset_m.unbind(-1)
        offset = torch.stack([c * x - s * y, s * x + c * y], -1)
        m = physics.body_m[:, self._bodies, :2] + offset
        return Shapes(m, yaw + self._turn_rad, self._box_half_m, self._post_m)


def lidar(
    origin_m: Float[Tensor, "n 2"],
    heading_rad: Float[Tensor, " n"],
    bearing_rad: Float[Tensor, " r"],
    shapes: Shapes,
    most_m: float,
) -> Float[Tensor, "n r"]:
    """Distance to the first shape along every ray [m], `most_m` where there is none; 0 inside a shape.

    Boxes by the slab method, in their own axes: a ray is inside between its last entry and its first exit.
    Posts by |o + t d| = radius: t = -o.d - sqrt((o.d)^2 - |o|^2 + radius^2).
    """
    angle = heading_rad[:, None] + bearing_rad  # (n, r)
    to_x, to_y = angle.cos()[:, None], angle.sin()[:, None]  # direction of rays, in the world frame
    boxes = len(shapes.box_half_m)
    x, y = (origin_m[:, None] - shapes.m)[..., None].unbind(-2)  # (n, g, 1), of the origin from each shape
    nearest = torch.full_like(angle, most_m)
    if boxes:  # rays last: loops over them are long enough for vector instructions
        yaw = shapes.yaw_rad[:, :boxes, None]
        c, s, bx, by = yaw.cos(), yaw.sin(), x[:, :boxes], y[:, :boxes]
        half_x, half_y = shapes.box_half_m[..., None].unbind(1)  # (b, 1)
        enter_x, leave_x = _slab(c * bx + s * by, c * to_x + s * to_y, half_x)  # (n, b, r)
        enter_y, leave_y = _slab(c * by - s * bx, c * to_y - s * to_x, half_y)
        enter, leave = enter_x.maximum(enter_y).clamp_min(0.0), leave_x.minimum(leave_y)
        nearest = nearest.minimum(torch.where(leave >= enter, enter, most_m).amin(1))
    if len(shapes.post_m):
        px, py = x[:, boxes:], y[:, boxes:]
        along = px * to_x + py * to_y  # (n, p, r)
        outside = px.square() + py.square() - shapes.post_m[:, None].square()
        depth = along.square() - outside
        reach = -along - depth.clamp_min(0.0).sqrt()
        seen = torch.where((depth > 0.0) & (reach > 0.0), reach, most_m)
        nearest = nearest.minimum(torch.where(outside < 0.0, 0.0, seen).amin(1))
    return nearest


def clearance(point_m: Float[Tensor, "n q 2"], shapes: Shapes) -> Float[Tensor, "n q"]:
    """Distance from q points of each world to the nearest shape [m]; negative inside."""
    boxes = len(shapes.box_half_m)
    x, y = (point_m[:, :, None] - shapes.m[:, None]).unbind(-1)  # (n, q, g)
    found = []
    if boxes:
        yaw = shapes.yaw_rad[:, None, :boxes]
        c, s = yaw.cos(), yaw.sin()
        bx, by = x[..., :boxes], y[..., :boxes]
        out_x = (c * bx + s * by).abs() - shapes.box_half_m[:, 0]
        out_y = (c * by - s * bx).abs() - shapes.box_half_m[:, 1]
        outside = (out_x.clamp_min(0.0).square() + out_y.clamp_min(0.0).square()).sqrt()
        found.append(outside + out_x.maximum(out_y).clamp_max(0.0))
    if len(shapes.post_m):
        found.append((x[..., boxes:].square() + y[..., boxes:].square()).sqrt() - shapes.post_m)
    if not found:
        return torch.full_like(point_m[..., 0], math.inf)
    return torch.cat(found, -1).amin(-1)


def _slab(place: Tensor, direction: Tensor, half_m: Tensor) -> tuple[Tensor, Tensor]:
    """Entry and exit of a ray that starts at `place` into |x| <= half."""
    safe = torch.where(direction.abs() < 1e-9, 1e-9, direction)
    one, other = (-half_m - place) / safe, (half_m - place) / safe
    return one.minimum(other), one.maximum(other)


def _stands(model: Any, data: Any, geom: int, height_m: float) -> bool:
    """True for a geom that collides, stands upright in the surroundings, and reaches that height."""
    body, kind = int(model.geom_bodyid[geom]), int(model.geom_type[geom])
    collides = bool(model.geom_contype[geom] or model.geom_conaffinity[geom])
    if not collides or kind not in (_BOX, _CYLINDER) or int(model.body_dofnum[model.body_rootid[body]]) > 0:
        return False
    half_m = float(model.geom_size[geom][2 if kind == _BOX else 1])
    upright = abs(abs(float(data.geom_xmat[geom][8])) - 1.0) < 1e-6
    return upright and abs(height_m - float(data.geom_xpos[geom][2])) <= half_m
