"""Drive of a base with an arm on it: see `sim.bodies.protocol`. The arm is commanded in the base's frame.

An action: forward and turning speed as in `sim.mobile.drive`; tool motion in the base's axes, as in Cartesian
control of a fixed arm; the fingers. The desired tool pose moves with the base.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import mujoco
import torch
from torch import Tensor

from robo_rl.core.shapes import Float
from robo_rl.core.spec import ActionSpec
from sim.arms.chain import KinematicChain
from sim.arms.control import Cartesian, Reach
from sim.arms.ready_poses import ReadyPoses
from sim.arms.robot import PANDA, ArmRobot
from sim.arms.view import Wiring
from sim.bodies.pose import Pose
from sim.bodies.protocol import DriveStart, SceneTask
from sim.bodies.rotation import about_z, multiply, rotate
from sim.engines.protocol import Physics, Start
from sim.engines.scene import Scene
from sim.mobile.base import BaseRobot
from sim.mobile.drive import Wheels
from sim.mobile.surroundings import Surroundings
from sim.mobile.view import BaseView, BaseWiring, laser_of

ARM = PANDA
MOUNT_M = (0.1, 0.0, 0.34)  # on the base's deck


def mount_arm(spec: Any) -> None:
    """Mount the arm on the base of a scene, with a camera at its wrist and one on a mast behind it."""
    part = mujoco.MjSpec.from_file(str(ARM.path))
    part.default.name = "arm"  # MuJoCo cannot read an unnamed class that it has written
    spec.attach(part, frame=spec.body("base").add_frame(pos=MOUNT_M), prefix="")
    wrist = spec.body("hand").add_camera(name="wrist", pos=(0.06, 0.0, -0.02), fovy=75.0)
    wrist.quat = (0.0, 0.70710678, 0.70710678, 0.0)  # along the fingers
    head = spec.body("base").add_camera(name="head", pos=(-0.1, 0.2, 1.35), fovy=70.0)
    head.quat = (0.62721, 0.32651, -0.32651, -0.62721)  # ahead, 35 degrees down
    spec.body("base").add_geom(
        type=mujoco.mjtGeom.mjGEOM_CYLINDER,
        fromto=(-0.14, 0.2, 0.34, -0.14, 0.2, 1.35),
        size=(0.02, 0, 0),
        mass=1.5,
        contype=0,
        conaffinity=0,
        rgba=(0.3, 0.32, 0.35, 1.0),
    )


@dataclass(frozen=True)
class ManipulatorWiring(BaseWiring):
    """Columns of the base and of the arm."""

    arm: Wiring


class BaseFrame(NamedTuple):
    """View in the base's frame: x ahead, y to the left, the floor at 0."""

    view: ManipulatorView
    tool: Pose

    def object_pose(self, name: str) -> Pose:
        return self.view.pose_from_base(self.view.object_pose(name))


class ManipulatorView(BaseView):
    """View of n worlds; see `BaseView`. Names without `local` are in the world frame."""

    def __init__(self, physics: Physics, wiring: ManipulatorWiring, goal: Float[Tensor, "n g"]) -> None:
        super().__init__(physics, wiring, goal)
        self._arm = wiring.arm
        chain = wiring.arm.chain
        tool = chain.tool_pose(physics.body_m[:, chain.tool_body], physics.body_quat[:, chain.tool_body])
        self.local = BaseFrame(self, self.pose_from_base(tool))

    @property
    def q_rad(self) -> Float[Tensor, "n j"]:
        return self.physics.qpos[:, self._arm.arm]

    @property
    def opening_m(self) -> Float[Tensor, " n"]:
        """Mean distance of the fingers from the middle."""
        return self.physics.qpos[:, self._arm.fingers].mean(1)

    @property
    def links(self) -> Pose:
        """Poses of the links in the base's frame, (n, j, ...)."""
        rows = self._arm.chain.links
        m, quat = self.physics.body_m[:, rows], self.physics.body_quat[:, rows]
        back = about_z(-self.yaw_rad)[:, None].expand_as(quat)
        return Pose(rotate(back, m - self._floor[:, None]), multiply(back, quat))

    def pose_from_base(self, pose: Pose) -> Pose:
        back = about_z(-self.yaw_rad)
        return Pose(rotate(back, pose.m - self._floor), multiply(back, pose.quat))

    def heading_from_base(self, yaw_rad: Float[Tensor, " n"]) -> Float[Tensor, "n 2"]:
        """Cosine and sine of a heading as seen from the base."""
        return torch.stack([(yaw_rad - self.yaw_rad).cos(), (yaw_rad - self.yaw_rad).sin()], -1)

    @property
    def _floor(self) -> Float[Tensor, "n 3"]:
        """Origin of the base's frame."""
        return torch.nn.functional.pad(self.xy_m, (0, 1))


@runtime_checkable
class ManipulatorTask(SceneTask, Protocol):
    """Members that base and arm need of a task. k = episodes that start, u = uniform numbers of each, g = of
    the goal.
    """

    numbers: int  # u
    cloud_m: tuple[tuple[float, float, float], tuple[float, float, float]]
    reach: Reach  # of the tool, in the base's frame
    ready_m: tuple[
        tuple[float, float, float], tuple[float, float, float]
    ]  # where the tool starts, in the base's frame

    def start(
        self, uniform: Float[Tensor, "k u"], start: Start, wiring: ManipulatorWiring
    ) -> tuple[Float[Tensor, "k 3"], Float[Tensor, "k g"]]:
        """Pose of the base (x [m], y [m], heading [rad]) and the goal; fills `start`, in which the arm is
        ready.
        """
        ...

    def expert(
        self, view: ManipulatorView, base: BaseRobot
    ) -> tuple[Float[Tensor, "n 2"], Float[Tensor, "n b"]]:
        """Forward [m/s] and turning speed [rad/s] of the expert; tool and fingers in [-1, 1]."""
        ...


class ManipulatorDrive:
    """See `sim.bodies.protocol.Drive`. Its memory: the commanded speed (2), and the desired tool pose in the
    base's frame (7).
    """

    def __init__(
        self, scene: Scene, base: BaseRobot, arm: ArmRobot, task: ManipulatorTask, like: Tensor
    ) -> None:
        self._base, self._robot, self._task = base, arm, task
        chain = KinematicChain(
            scene, arm, like.device, like.dtype
        )  # in the base's frame: the base stands at the origin
        around = Surroundings(scene, laser_of(scene)[2], like)
        self.wiring = ManipulatorWiring(scene, like, base, around, Wiring(scene, like, arm, chain))
        self.numbers, self.cloud_m = 1 + task.numbers, task.cloud_m
        self._ready = ReadyPoses(chain, arm, task.ready_m)
        self._wheels, self._tool = Wheels(scene, base, like), Cartesian(chain, arm, task.reach)
        drive, tool = self._wheels.action, self._tool.action
        self.action = ActionSpec(
            (*drive.low, *tool.low, -1.0), (*drive.high, *tool.high, 1.0),
            f"{drive.unit}, in the base's axes {tool.unit}, fingers: -1 closed, 1 open",
        )  # fmt: skip

    def view(self, physics: Physics, goal: Float[Tensor, "n g"]) -> ManipulatorView:
        return ManipulatorView(physics, self.wiring, goal)

    def start(self, uniform: Float[Tensor, "k u"]) -> DriveStart:
        """Start states with the tool in the task's box, drawn by the first number."""
        q_rad, tool = self._ready.draw(uniform[:, 0])
        start = self.wiring.arm.start(q_rad, self._robot.open_m)
        pose, goal = self._task.start(uniform[:, 1:], start, self.wiring)
        start.qpos[:, self.wiring.pose] = pose
        start.ctrl[:, self.wiring.servos] = pose
        return DriveStart(start, goal, torch.cat([pose.new_zeros(len(pose), 2), tool.m, tool.quat], -1))

    def command(
        self, memory: Float[Tensor, "n 9"], action: Float[Tensor, "n a"], view: ManipulatorView
    ) -> tuple[Float[Tensor, "n nu"], Float[Tensor, "n 9"]]:
        wiring = self.wiring
        twist = self._wheels.limited_twist(memory[:, :2], action[:, :2])
        joints, tool = self._tool.command(
            memory[:, 2:], action[:, 2:], view.q_rad, view.local.tool, view.links
        )
        ctrl = joints.new_zeros(len(joints), wiring.scene.model.nu)
        ctrl[:, wiring.servos] = self._wheels.targets(twist, view.xy_m, view.yaw_rad)
        ctrl[:, wiring.arm.servos] = joints
        ctrl[:, wiring.arm.grips] = 0.5 * (action[:, -1:] + 1.0) * self._robot.open_m
        return ctrl, torch.cat([twist, tool], -1)

    def script(self, view: ManipulatorView) -> Float[Tensor, "n b"]:
        twist, tool = self._task.expert(view, self._base)
        return torch.cat([self._wheels.action.normalize(twist).clamp(-1.0, 1.0), tool], -1)

    def from_script(
        self, wanted: Float[Tensor, "n b"], view: ManipulatorView, memory: Tensor
    ) -> Float[Tensor, "n a"]:
        return torch.cat([self._wheels.action.denormalize(wanted[:, :2]), wanted[:, 2:]], -1)
