"""An arm with or without a gripper, as what a task commands: see `sim.scenes.drive`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from robo_rl.core.spec import ActionSpec
from sim.arms.chain import KinematicChain, Pose
from sim.arms.control import Cartesian, make_control
from sim.arms.robot import ArmRobot, load_robot
from sim.engines.protocol import Physics
from sim.engines.scene import Scene
from sim.scenes.cameras import around_tool
from sim.scenes.drive import Begun
from sim.tasks.arm.starts import ReadyPoses
from sim.tasks.manipulation import CONTROL_HZ, ManipulationTask, View, Wiring


class ArmBody:
    """The arm `options.robot`, commanded as `options.control` says. See `sim.scenes.drive.Body`."""

    def __init__(self, task: ManipulationTask, options: Any) -> None:
        self._task, self._control, self._robot = task, options.control, load_robot(options.robot)

    @property
    def path(self) -> Path:
        return self._robot.path

    def drive(self, scene: Scene, like: Tensor) -> ArmDrive:
        return ArmDrive(scene, self._robot, self._task, self._control, like)


class ArmDrive:
    """Arm and fingers: actions move tool or joints, the last number the fingers. See
    `sim.scenes.drive.Drive`.
    """

    def __init__(
        self, scene: Scene, robot: ArmRobot, task: ManipulationTask, control: str, like: Tensor
    ) -> None:
        self._task, self._robot, self._mode = task, robot, control
        self._chain = chain = KinematicChain(scene, robot, like.device, like.dtype)
        self.wiring = Wiring(scene, like, robot, chain)
        self._control = make_control(control, chain, robot, task.reach, CONTROL_HZ)
        self._by_tool = Cartesian(chain, robot, task.reach)
        self._ready = ReadyPoses(chain, robot, task.ready_m)
        self.numbers, self.cloud_m = 1 + task.numbers, around_tool(task.reach)
        move, grip = self._control.action, 1 if task.grips else 0
        self.action = ActionSpec(
            (*move.low, *(-1.0,) * grip), (*move.high, *(1.0,) * grip),
            move.unit + (", fingers: -1 closed, 1 open" if grip else ""),
        )  # fmt: skip

    def view(self, physics: Physics, goal: Float[Tensor, "n g"]) -> View:
        return View(physics, self.wiring, goal)

    def start(self, uniform: Float[Tensor, "k u"]) -> Begun:
        """The tool somewhere in the task's box, by the first number."""
        q_rad, tool = self._ready.draw(uniform[:, 0])
        start, goal = self._task.start(uniform[:, 1:], q_rad, tool, self.wiring)
        return Begun(start, goal, self._control.begin(q_rad, Pose(*(part.to(q_rad) for part in tool))))

    def command(
        self, memory: Float[Tensor, "n w"], action: Float[Tensor, "n a"], view: View
    ) -> tuple[Float[Tensor, "n nu"], Float[Tensor, "n w"]]:
        wiring = self.wiring
        target, memory = self._control.command(memory, action, view.q_rad, view.tool, view.links)
        ctrl = target.new_zeros(len(target), wiring.scene.model.nu)
        ctrl[:, wiring.servos] = target
        if self._task.grips:
            ctrl[:, wiring.grips] = 0.5 * (action[:, -1:] + 1.0) * self._robot.open_m
        return ctrl, memory

    def script(self, view: View) -> Float[Tensor, "n b"]:
        """A command of the tool and the fingers, whatever the control."""
        return self._task.expert(view, self._task.reach)

    def from_script(
        self, wanted: Float[Tensor, "n b"], view: View, memory: Float[Tensor, "n w"]
    ) -> Float[Tensor, "n a"]:
        """By the same inverse kinematics that Cartesian control uses. A speed moves where the joints were
        sent, which is ahead of where they are by what the servos lag: so it is counted from there, or the lag
        would count twice.
        """
        if self._mode == "cartesian":
            return wanted
        moves = self._mode == "joint_velocity"
        sent = self._chain.place(memory)[0] if moves else view.tool
        begun = self._by_tool.begin(view.q_rad, sent)
        target, _ = self._by_tool.command(begun, wanted, view.q_rad, view.tool, view.links)
        joints = (target - memory) * CONTROL_HZ if moves else target
        return torch.cat([joints, wanted[:, self._by_tool.action.dim :]], -1)
