"""View of n worlds for tasks of a base and their experts; the base's columns in the arrays of an engine."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from robo_rl.core.shapes import Float
from sim.bodies.scene_view import SceneColumns, SceneView
from sim.engines.protocol import Physics
from sim.engines.scene import Scene
from sim.mobile.base import BaseRobot
from sim.mobile.surroundings import Shapes, Surroundings, clearance, lidar


@dataclass(frozen=True)
class BaseWiring(SceneColumns):
    """Columns of the base. `around` is made beforehand: while a kernel is traced, tensors have no values."""

    base: BaseRobot
    around: Surroundings

    @cached_property
    def pose(self) -> Any:
        """x [m], y [m], heading [rad] in qpos."""
        return self.qpos_of(self.base.joints)

    @cached_property
    def speed(self) -> Any:
        return self.qvel_of(self.base.joints)

    @cached_property
    def servos(self) -> Any:
        return self.ctrl_of(self.base.joints)

    @cached_property
    def laser_m(self) -> tuple[float, float, float]:
        return laser_of(self.scene)


def laser_of(scene: Scene) -> tuple[float, float, float]:
    """Position of the laser in the base's frame [m]."""
    x, y, z = scene.site("laser")[1].tolist()
    return x, y, z


class BaseView(SceneView):
    """View of n worlds. Headings in rad about the world's z, speeds along and about the base's own axes."""

    def __init__(self, physics: Physics, wiring: BaseWiring, goal: Float[Tensor, "n g"]) -> None:
        super().__init__(physics, wiring, goal)
        self._base = wiring

    @property
    def xy_m(self) -> Float[Tensor, "n 2"]:
        return self.physics.qpos[:, self._base.pose][:, :2]

    @property
    def yaw_rad(self) -> Float[Tensor, " n"]:
        """Heading, counting whole turns."""
        return self.physics.qpos[:, self._base.pose][:, 2]

    @property
    def twist(self) -> Float[Tensor, "n 2"]:
        """Forward [m/s] and turning speed [rad/s]."""
        x, y, turn = self.physics.qvel[:, self._base.speed].unbind(-1)
        return torch.stack([x * self.yaw_rad.cos() + y * self.yaw_rad.sin(), turn], -1)

    @property
    def shapes(self) -> Shapes:
        """Shapes around the base at the height of the laser."""
        return self._base.around.shapes(self.physics)

    def from_base(self, point_m: Float[Tensor, "n 2"]) -> Float[Tensor, "n 2"]:
        """A point of the world in the base's frame: x ahead, y to the left [m]."""
        x, y = (point_m - self.xy_m).unbind(-1)
        c, s = self.yaw_rad.cos(), self.yaw_rad.sin()
        return torch.stack([c * x + s * y, c * y - s * x], -1)

    def lidar_m(self, bearing_rad: Float[Tensor, " r"], most_m: float) -> Float[Tensor, "n r"]:
        """Laser ranges without noise: bearings from straight ahead, to the left."""
        x, y, _ = self._base.laser_m
        c, s = self.yaw_rad.cos(), self.yaw_rad.sin()
        origin = self.xy_m + torch.stack([c * x - s * y, s * x + c * y], -1)
        return lidar(origin, self.yaw_rad, bearing_rad, self.shapes, most_m)

    @property
    def clearance_m(self) -> Float[Tensor, " n"]:
        """Distance from the circle around the base to the nearest object; negative inside."""
        return clearance(self.xy_m[:, None], self.shapes)[:, 0] - self._base.base.radius_m
