"""What a manipulation task is: pure functions of what n worlds look like, whichever engine moves them.

A task file holds where episodes start, what is observed, what pays and what counts as solved; nothing of physics.
Engines, control modes and arms are chosen beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from sim.arms.chain import Chain, Pose
from sim.arms.control import Reach
from sim.arms.robot import ArmRobot
from sim.engines.protocol import Physics, Start
from sim.engines.scene import Scene

CONTROL_HZ, SUBSTEPS = 20.0, 10


@dataclass(frozen=True)
class Wiring:
    """Which columns of an engine's arrays are the arm's, and where each loose thing stands."""

    scene: Scene
    robot: ArmRobot
    chain: Chain

    @cached_property
    def arm(self) -> Any:
        return _together([self.scene.qpos(name).start for name in self.robot.joints])

    @cached_property
    def arm_speed(self) -> Any:
        return _together([self.scene.qvel(name).start for name in self.robot.joints])

    @cached_property
    def fingers(self) -> Any:
        return _together([self.scene.qpos(name).start for name in self.robot.fingers])

    @cached_property
    def servos(self) -> Any:
        return _together([self.scene.ctrl(name) for name in self.robot.joints])

    @cached_property
    def grips(self) -> Any:
        return _together([self.scene.ctrl(name) for name in self.robot.fingers])

    @cached_property
    def loose(self) -> Mapping[str, tuple[slice, slice]]:
        """Free joint -> its columns of qpos and qvel."""
        names = [name for name in self.scene.joints if self.scene.qpos(name).stop - self.scene.qpos(name).start == 7]
        return {name: (self.scene.qpos(name), self.scene.qvel(name)) for name in names}

    def start(self, q_rad: Float[Tensor, "k j"], opening_m: float, width_m: float | None = None) -> Start:
        """Arm at rest there, fingers at `width_m`, pulled to `opening_m` (from the middle); all else as in the MJCF."""
        k = len(q_rad)
        qpos0, fixture_m, fixture_quat = self._as_written
        qpos = qpos0.repeat(k, 1)
        qpos[:, self.arm] = q_rad
        qpos[:, self.fingers] = opening_m if width_m is None else width_m
        ctrl = q_rad.new_zeros(k, self.scene.model.nu)
        ctrl[:, self.servos] = q_rad
        ctrl[:, self.grips] = opening_m
        return Start(qpos, ctrl, fixture_m.repeat(k, 1, 1), fixture_quat.repeat(k, 1, 1))

    @cached_property
    def _as_written(self) -> tuple[Tensor, Tensor, Tensor]:
        """(qpos, positions and quaternions of fixtures) of the MJCF, where and in the type that the chain computes."""
        model, rows = self.scene.model, [self.scene.body(name) for name in self.scene.fixtures]
        arrays = (model.qpos0, model.body_pos[rows], model.body_quat[rows])
        qpos0, fixture_m, fixture_quat = (self.chain.low_rad.new_tensor(array) for array in arrays)
        return qpos0, fixture_m, fixture_quat


class View:
    """What tasks and experts see of n worlds. Positions in m in the world, quaternions wxyz; fresh at every step."""

    def __init__(self, physics: Physics, wiring: Wiring, goal: Float[Tensor, "n g"]) -> None:
        self.physics, self.goal, self._wiring = physics, goal, wiring
        body = wiring.chain.tool_body
        self.tool = wiring.chain.tool_pose(physics.body_m[:, body], physics.body_quat[:, body])

    @property
    def q_rad(self) -> Float[Tensor, "n j"]:
        return self.physics.qpos[:, self._wiring.arm]

    @property
    def dq_rad_s(self) -> Float[Tensor, "n j"]:
        return self.physics.qvel[:, self._wiring.arm_speed]

    @property
    def opening_m(self) -> Float[Tensor, " n"]:
        """Mean distance of the fingers from the middle."""
        return self.physics.qpos[:, self._wiring.fingers].mean(1)

    @property
    def links(self) -> Pose:
        rows = self._wiring.chain.links
        return Pose(self.physics.body_m[:, rows], self.physics.body_quat[:, rows])

    def thing(self, name: str) -> Pose:
        """Where a loose thing is, by the name of its free joint."""
        columns = self._wiring.loose[name][0]
        return Pose(self.physics.qpos[:, columns][:, :3], self.physics.qpos[:, columns][:, 3:])

    def body(self, name: str) -> Pose:
        """Where a body is, by its name in the MJCF."""
        row = self._wiring.scene.body(name)
        return Pose(self.physics.body_m[:, row], self.physics.body_quat[:, row])

    def joint(self, name: str) -> tuple[Float[Tensor, " n"], Float[Tensor, " n"]]:
        """(position, speed) of a slide [m, m/s] or a hinge [rad, rad/s]."""
        scene = self._wiring.scene
        return self.physics.qpos[:, scene.qpos(name).start], self.physics.qvel[:, scene.qvel(name).start]

    def speed_m_s(self, name: str) -> Float[Tensor, "n 3"]:
        return self.physics.qvel[:, self._wiring.loose[name][1]][:, :3]


@runtime_checkable
class ManipulationTask(Protocol):
    """One task. k = episodes that start, u = uniform numbers each takes, g = numbers of its goal, o = observation."""

    name: str
    scene: str  # a file in sim/assets
    numbers: int  # u
    max_steps: int
    hold_steps: int  # solved for so many steps in a row is success
    reach: Reach
    grips: bool  # does an action open and close the fingers?
    ready_m: tuple[tuple[float, float, float], tuple[float, float, float]]  # where the tool starts: a box, low and high
    obs_parts: tuple[tuple[str, int, str], ...]  # (name, numbers, unit) of what `observe` returns, in order
    weights: Mapping[str, float]  # of the reward's terms

    def edit(self, spec: Any) -> None:
        """Turn the task's dials in the MJCF."""
        ...

    def start(
        self, uniform: Float[Tensor, "k u"], q_rad: Float[Tensor, "k j"], tool: Pose, wiring: Wiring
    ) -> tuple[Start, Float[Tensor, "k g"]]:
        """uniform: in (0, 1). The arm starts at `q_rad`, its tool at `tool`."""
        ...

    def observe(self, view: View) -> Float[Tensor, "n o"]: ...

    def solved(self, view: View) -> Bool[Tensor, " n"]: ...

    def terms(self, view: View) -> dict[str, Float[Tensor, " n"]]:
        """What the dense reward adds up, by `weights`; each within [0, 1] or minus a distance [m]."""
        ...

    def expert(self, view: View, reach: Reach) -> Float[Tensor, "n a"]:
        """A script that solves it in Cartesian control: what to do is a function of what is seen. In [-1, 1]."""
        ...


def between(uniform: Float[Tensor, " *k"], low: float, high: float) -> Float[Tensor, " *k"]:
    return low + (high - low) * uniform


def toward(goal_m: Float[Tensor, "n 3"], view: View, reach: Reach, gain: float = 0.7) -> Float[Tensor, "n 3"]:
    """The action that brings the tool there, slower as it comes near."""
    return (gain * (goal_m - view.tool.m) / reach.step_m).clamp(-1.0, 1.0)


def _together(columns: list[int]) -> Any:
    """A slice where that is enough: a view costs less than a copy."""
    if columns and columns == list(range(columns[0], columns[0] + len(columns))):
        return slice(columns[0], columns[0] + len(columns))
    return torch.tensor(columns, dtype=torch.long)
