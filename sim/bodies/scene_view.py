"""View of a scene that every task has, whatever body it commands: poses of the scene's objects.

Each body adds its own columns to both classes: `sim.arms.view` adds the joints and the tool of an arm.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from robo_rl.core.errors import UnknownNameError
from robo_rl.core.shapes import Float
from sim.bodies.pose import Pose
from sim.engines.protocol import Physics, Start
from sim.engines.scene import Scene


@dataclass(frozen=True)
class SceneColumns:
    """Columns of free objects in an engine's arrays. like: a tensor with their dtype and device."""

    scene: Scene
    like: Tensor

    @cached_property
    def loose(self) -> Mapping[str, tuple[slice, slice]]:
        """Columns of qpos and qvel by free joint."""
        names = [
            name
            for name in self.scene.joints
            if self.scene.qpos(name).stop - self.scene.qpos(name).start == 7
        ]
        return {name: (self.scene.qpos(name), self.scene.qvel(name)) for name in names}

    def qpos_of(self, joints: tuple[str, ...]) -> Any:
        """Columns of these joints in qpos, for indexing: a slice where they are adjacent."""
        return together([self.scene.qpos(name).start for name in joints])

    def qvel_of(self, joints: tuple[str, ...]) -> Any:
        return together([self.scene.qvel(name).start for name in joints])

    def ctrl_of(self, actuators: tuple[str, ...]) -> Any:
        return together([self.scene.ctrl(name) for name in actuators])

    def as_written(self, k: int) -> Start:
        """Start state of k worlds as in the MJCF, at rest, servo targets 0. Fresh tensors, for a task to
        fill.
        """
        qpos0, fixture_m, fixture_quat = self._as_written
        ctrl = self.like.new_zeros(k, self.scene.model.nu)
        return Start(qpos0.repeat(k, 1), ctrl, fixture_m.repeat(k, 1, 1), fixture_quat.repeat(k, 1, 1))

    @cached_property
    def _as_written(self) -> tuple[Tensor, Tensor, Tensor]:
        """qpos, and positions and quaternions of fixtures, as in the MJCF."""
        model, rows = self.scene.model, [self.scene.body(name) for name in self.scene.fixtures]
        arrays = (model.qpos0, model.body_pos[rows], model.body_quat[rows])
        qpos0, fixture_m, fixture_quat = (self.like.new_tensor(array) for array in arrays)
        return qpos0, fixture_m, fixture_quat


@runtime_checkable
class ToolAndObjects(Protocol):
    """Poses of an arm's tool and of objects in one frame: the world's, or that of the base under the arm."""

    @property
    def tool(self) -> Pose: ...

    def object_pose(self, name: str) -> Pose: ...


class SceneView:
    """View of n worlds. Positions in m in the world frame, quaternions wxyz; made anew at every step."""

    def __init__(self, physics: Physics, columns: SceneColumns, goal: Float[Tensor, "n g"]) -> None:
        self.physics, self.goal, self._columns = physics, goal, columns

    def object_pose(self, name: str) -> Pose:
        """Pose of a free object, by the name of its free joint."""
        columns = self._free_object(name)[0]
        return Pose(self.physics.qpos[:, columns][:, :3], self.physics.qpos[:, columns][:, 3:])

    def body(self, name: str) -> Pose:
        """Pose of a body, by its name in the MJCF."""
        row = self._columns.scene.body(name)
        return Pose(self.physics.body_m[:, row], self.physics.body_quat[:, row])

    def joint(self, name: str) -> tuple[Float[Tensor, " n"], Float[Tensor, " n"]]:
        """Position and speed of a slide [m, m/s] or a hinge [rad, rad/s]."""
        scene = self._columns.scene
        return self.physics.qpos[:, scene.qpos(name).start], self.physics.qvel[:, scene.qvel(name).start]

    def speed_m_s(self, name: str) -> Float[Tensor, "n 3"]:
        return self.physics.qvel[:, self._free_object(name)[1]][:, :3]

    def spin_rad_s(self, name: str) -> Float[Tensor, "n 3"]:
        """Angular velocity about the object's own axes."""
        return self.physics.qvel[:, self._free_object(name)[1]][:, 3:]

    def _free_object(self, name: str) -> tuple[slice, slice]:
        """Columns of a free object. Raises UnknownNameError."""
        loose = self._columns.loose
        if name not in loose:
            raise UnknownNameError("free object", name, loose)
        return loose[name]


def together(columns: list[int]) -> Any:
    """A slice for adjacent columns: a view costs less than a copy."""
    if columns and columns == list(range(columns[0], columns[0] + len(columns))):
        return slice(columns[0], columns[0] + len(columns))
    return torch.tensor(columns, dtype=torch.long)
