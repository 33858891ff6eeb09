"""What every task sees of n worlds, whatever body it commands: where the scene's things are.

Each body adds its own columns to both classes: `sim.arms.view` adds the joints and the tool of an arm.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from sim.bodies.pose import Pose
from sim.engines.protocol import Physics, Start
from sim.engines.scene import Scene


@dataclass(frozen=True)
class Places:
    """Where loose things stand in an engine's arrays. `like`: any tensor of the type and on the device of
    those.
    """

    scene: Scene
    like: Tensor

    @cached_property
    def loose(self) -> Mapping[str, tuple[slice, slice]]:
        """Free joint -> its columns of qpos and qvel."""
        names = [
            name
            for name in self.scene.joints
            if self.scene.qpos(name).stop - self.scene.qpos(name).start == 7
        ]
        return {name: (self.scene.qpos(name), self.scene.qvel(name)) for name in names}

    def qpos_of(self, joints: tuple[str, ...]) -> Any:
        """Their columns of qpos, for indexing: a slice where they stand together."""
        return together([self.scene.qpos(name).start for name in joints])

    def qvel_of(self, joints: tuple[str, ...]) -> Any:
        return together([self.scene.qvel(name).start for name in joints])

    def ctrl_of(self, actuators: tuple[str, ...]) -> Any:
        return together([self.scene.ctrl(name) for name in actuators])

    def as_written(self, k: int) -> Start:
        """k worlds as in the MJCF, at rest, the servos' targets 0. Fresh tensors, for a task to fill."""
        qpos0, fixture_m, fixture_quat = self._as_written
        ctrl = self.like.new_zeros(k, self.scene.model.nu)
        return Start(qpos0.repeat(k, 1), ctrl, fixture_m.repeat(k, 1, 1), fixture_quat.repeat(k, 1, 1))

    @cached_property
    def _as_written(self) -> tuple[Tensor, Tensor, Tensor]:
        """(qpos, positions and quaternions of fixtures)"""
        model, rows = self.scene.model, [self.scene.body(name) for name in self.scene.fixtures]
        arrays = (model.qpos0, model.body_pos[rows], model.body_quat[rows])
        qpos0, fixture_m, fixture_quat = (self.like.new_tensor(array) for array in arrays)
        return qpos0, fixture_m, fixture_quat


@runtime_checkable
class ToolAmongThings(Protocol):
    """Where an arm's tool and the scene's things are, all in one frame: the world's, or that of a base it
    stands on.
    """

    @property
    def tool(self) -> Pose: ...

    def thing(self, name: str) -> Pose: ...


class SceneView:
    """Positions in m in the world, quaternions wxyz; fresh at every step."""

    def __init__(self, physics: Physics, places: Places, goal: Float[Tensor, "n g"]) -> None:
        self.physics, self.goal, self._places = physics, goal, places

    def thing(self, name: str) -> Pose:
        """Where a loose thing is, by the name of its free joint."""
        columns = self._places.loose[name][0]
        return Pose(self.physics.qpos[:, columns][:, :3], self.physics.qpos[:, columns][:, 3:])

    def body(self, name: str) -> Pose:
        """Where a body is, by its name in the MJCF."""
        row = self._places.scene.body(name)
        return Pose(self.physics.body_m[:, row], self.physics.body_quat[:, row])

    def joint(self, name: str) -> tuple[Float[Tensor, " n"], Float[Tensor, " n"]]:
        """(position, speed) of a slide [m, m/s] or a hinge [rad, rad/s]."""
        scene = self._places.scene
        return self.physics.qpos[:, scene.qpos(name).start], self.physics.qvel[:, scene.qvel(name).start]

    def speed_m_s(self, name: str) -> Float[Tensor, "n 3"]:
        return self.physics.qvel[:, self._places.loose[name][1]][:, :3]

    def spin_rad_s(self, name: str) -> Float[Tensor, "n 3"]:
        """About the axes of the thing itself."""
        return self.physics.qvel[:, self._places.loose[name][1]][:, 3:]


def together(columns: list[int]) -> Any:
    """A slice where that is enough: a view costs less than a copy."""
    if columns and columns == list(range(columns[0], columns[0] + len(columns))):
        return slice(columns[0], columns[0] + len(columns))
    return torch.tensor(columns, dtype=torch.long)
