"""What a task of an arm is: pure functions of what n worlds look like, whichever engine moves them.

A task file holds where episodes start, what is observed, what pays and what counts as solved; nothing of
physics. Engines, control modes and arms are chosen beside it. Bodies of other kinds: `sim.scenes.drive`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

from jaxtyping import Float
from torch import Tensor

from sim.arms.chain import KinematicChain, Pose
from sim.arms.control import Reach
from sim.arms.robot import ArmRobot
from sim.engines.protocol import Physics, Start
from sim.scenes.drive import SceneTask
from sim.tasks.scene_view import Places, SceneView, ToolAmongThings

CONTROL_HZ, SUBSTEPS = 20.0, 10
# Of the way that is left, what an expert's command goes in a step. The arm is a step behind its command, and
# may hear it a step late: at twice as much, an expert circles around its goal and never comes to rest.
GAIN = 0.3


@dataclass(frozen=True)
class Wiring(Places):
    """Which columns of an engine's arrays are the arm's."""

    robot: ArmRobot
    chain: KinematicChain

    @cached_property
    def arm(self) -> Any:
        return self.qpos_of(self.robot.joints)

    @cached_property
    def arm_speed(self) -> Any:
        return self.qvel_of(self.robot.joints)

    @cached_property
    def fingers(self) -> Any:
        return self.qpos_of(self.robot.fingers)

    @cached_property
    def servos(self) -> Any:
        return self.ctrl_of(self.robot.joints)

    @cached_property
    def grips(self) -> Any:
        return self.ctrl_of(self.robot.fingers)

    def start(self, q_rad: Float[Tensor, "k j"], opening_m: float, width_m: float | None = None) -> Start:
        """Arm at rest there, fingers at `width_m`, pulled to `opening_m` (from the middle); all else as in
        the MJCF.
        """
        start = self.as_written(len(q_rad))
        start.qpos[:, self.arm] = q_rad
        start.qpos[:, self.fingers] = opening_m if width_m is None else width_m
        start.ctrl[:, self.servos] = q_rad
        start.ctrl[:, self.grips] = opening_m
        return start


class View(SceneView):
    """What tasks of an arm and their experts see of n worlds."""

    def __init__(self, physics: Physics, wiring: Wiring, goal: Float[Tensor, "n g"]) -> None:
        super().__init__(physics, wiring, goal)
        self._wiring = wiring
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


@runtime_checkable
class ManipulationTask(SceneTask, Protocol):
    """What an arm asks for besides. k = episodes that start, u = uniform numbers of each, g = numbers of its
    goal.
    """

    numbers: int  # u
    reach: Reach
    grips: bool  # does an action open and close the fingers?
    ready_m: tuple[
        tuple[float, float, float], tuple[float, float, float]
    ]  # where the tool starts: a box, low and high

    def start(
        self, uniform: Float[Tensor, "k u"], q_rad: Float[Tensor, "k j"], tool: Pose, wiring: Wiring
    ) -> tuple[Start, Float[Tensor, "k g"]]:
        """uniform: in (0, 1). The arm starts at `q_rad`, its tool at `tool`."""
        ...

    def expert(self, view: View, reach: Reach) -> Float[Tensor, "n a"]:
        """A script that solves it in Cartesian control: what to do is a function of what is seen. In [-1,
        1].
        """
        ...


def between(uniform: Float[Tensor, " *k"], low: float, high: float) -> Float[Tensor, " *k"]:
    return low + (high - low) * uniform


def toward(goal_m: Float[Tensor, "n 3"], view: ToolAmongThings, reach: Reach) -> Float[Tensor, "n 3"]:
    """The action that brings the tool there, slower as it comes near."""
    return (GAIN * (goal_m - view.tool.m) / reach.step_m).clamp(-1.0, 1.0)


def turning(left_rad: Float[Tensor, " *n"], reach: Reach) -> Float[Tensor, " *n"]:
    """The action that turns the tool by what is left, slower as it comes near."""
    return (GAIN * left_rad / reach.step_rad).clamp(-1.0, 1.0)
