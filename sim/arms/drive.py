"""Drive of an arm and of what it carries: see `sim.bodies.protocol`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from robo_rl.core.shapes import Float
from robo_rl.core.spec import ActionSpec
from sim.actuators.motors import check_servo
from sim.arms.chain import KinematicChain
from sim.arms.control import Cartesian, Reach, make_control
from sim.arms.effector import Effector, Gripper
from sim.arms.ready_poses import ReadyPoses
from sim.arms.robot import load_robot, naming_file
from sim.arms.view import View, Wiring
from sim.bodies.pose import Pose
from sim.bodies.protocol import CONTROL_HZ, DriveStart, SceneTask
from sim.engines.protocol import Physics, Start
from sim.engines.scene import Scene

BESIDE_M = 0.1  # clouds of points: a margin around the tool's space,
OFF_TABLE_M = 0.005  # and the height that leaves out the table


@runtime_checkable
class ManipulationTask(SceneTask, Protocol):
    """Members that an arm needs of a task. k = episodes that start, u = uniform numbers of each, g = numbers
    of its goal.
    """

    numbers: int  # u
    reach: Reach
    grips: bool  # True where an action opens and closes the fingers
    ready_m: tuple[
        tuple[float, float, float], tuple[float, float, float]
    ]  # where the tool starts: a box, low and high

    def start(
        self, uniform: Float[Tensor, "k u"], q_rad: Float[Tensor, "k j"], tool: Pose, wiring: Wiring
    ) -> tuple[Start, Float[Tensor, "k g"]]:
        """Start states and goals of k episodes.

        uniform: in (0, 1). The arm starts at `q_rad`, its tool at `tool`.
        """
        ...

    def expert(self, view: View, reach: Reach) -> Float[Tensor, "n a"]:
        """Command in [-1, 1] of a scripted expert in Cartesian control, a function of the view alone."""
        ...


class ArmBody:
    """The arm `options.robot`, commanded as `options.control` says. See `sim.bodies.protocol.Body`."""

    def __init__(self, task: ManipulationTask, options: Any) -> None:
        self._task, self._control, self._robot = task, options.control, load_robot(options.robot)
        self._given = options.robot

    @property
    def path(self) -> Path:
        return self._robot.path

    def drive(self, scene: Scene, like: Tensor) -> ArmDrive:
        robot = self._robot
        with naming_file(self._given):
            wiring = Wiring(scene, like, robot, KinematicChain(scene, robot, like.device, like.dtype))
            return ArmDrive(Gripper(wiring, self._task.grips), self._task, self._control)


class ArmDrive:
    """Drive of an arm and its effector: the first numbers of an action move tool or joints, the others the
    effector. See `sim.bodies.protocol.Drive`. Raises ConfigError for an actuator that is no position servo.
    """

    def __init__(self, effector: Effector, task: ManipulationTask, control: str) -> None:
        self._effector, self._task, self._mode = effector, task, control
        self.wiring = wiring = effector.wiring
        scene, robot, chain = wiring.scene, wiring.robot, wiring.chain
        for servo in (*robot.joints, *robot.fingers):
            check_servo(scene.model, scene.ctrl(servo), f"{robot.name} is commanded by such servos alone.")
        self._chain = chain
        self._control = make_control(control, chain, robot, task.reach, CONTROL_HZ)
        self._by_tool = Cartesian(chain, robot, task.reach)
        self._ready = ReadyPoses(chain, robot, task.ready_m)
        self.numbers, self.cloud_m = 1 + task.numbers, around_tool(task.reach)
        move, end = self._control.action, effector.action
        self.action = ActionSpec((*move.low, *end.low), (*move.high, *end.high), move.unit + end.unit)

    def view(self, physics: Physics, goal: Float[Tensor, "n g"]) -> View:
        return self._effector.view(physics, goal)

    def start(self, uniform: Float[Tensor, "k u"]) -> DriveStart:
        """Start states with the tool in the task's box, drawn by the first number."""
        q_rad, tool = self._ready.draw(uniform[:, 0])
        start, goal = self._task.start(uniform[:, 1:], q_rad, tool, self.wiring)
        return DriveStart(start, goal, self._control.begin(q_rad, Pose(*(part.to(q_rad) for part in tool))))

    def command(
        self, memory: Float[Tensor, "n w"], action: Float[Tensor, "n a"], view: View
    ) -> tuple[Float[Tensor, "n nu"], Float[Tensor, "n w"]]:
        wiring = self.wiring
        target, memory = self._control.command(memory, action, view.q_rad, view.tool, view.links)
        ctrl = target.new_zeros(len(target), wiring.scene.model.nu)
        ctrl[:, wiring.servos] = target
        if self._effector.action.dim:
            own = action[:, self._control.action.dim :]
            ctrl[:, self._effector.servos] = self._effector.targets(own, view)
        return ctrl, memory

    def script(self, view: View) -> Float[Tensor, "n b"]:
        """Command of the tool and the effector, in every control mode."""
        return self._task.expert(view, self._task.reach)

    def from_script(
        self, wanted: Float[Tensor, "n b"], view: View, memory: Float[Tensor, "n w"]
    ) -> Float[Tensor, "n a"]:
        """Action for a command of the tool, by the inverse kinematics of Cartesian control.

        A joint velocity moves the commanded joints, which are ahead of the measured ones by the servos' lag:
        it is computed from the commanded ones, or the lag would count twice.
        """
        moved = self._by_tool.action.dim
        end = self._effector.from_script(wanted[:, moved:], view)
        if self._mode == "cartesian":
            return torch.cat([wanted[:, :moved], end], -1)
        moves = self._mode == "joint_velocity"
        sent = self._chain.place(memory)[0] if moves else view.tool
        begun = self._by_tool.begin(view.q_rad, sent)
        target, _ = self._by_tool.command(begun, wanted, view.q_rad, view.tool, view.links)
        joints = (target - memory) * CONTROL_HZ if moves else target
        return torch.cat([joints, end], -1)


def around_tool(reach: Reach) -> tuple[tuple[float, float, float], tuple[float, float, float]]:
    """Box of the point clouds: the tool's space and a margin, without the table."""
    (west, south, _), (east, north, top) = reach.low_m, reach.high_m
    return (west - BESIDE_M, south - BESIDE_M, OFF_TABLE_M), (
        east + BESIDE_M,
        north + BESIDE_M,
        top + BESIDE_M,
    )
