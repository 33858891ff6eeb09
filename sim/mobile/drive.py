"""Drive of a base with two driven wheels: see `sim.bodies.protocol`.

An action commands forward and turning speed. Their rate of change is limited. Where a wheel would turn too
fast, both speeds are reduced by the same factor, so that the curvature stays. They become servo targets:

    (x, y)* = (x, y) + (v u + tau v w n) lead        yaw* = yaw + w lead        lead = kv / kp + dt / 2

u and n point ahead and to the left at the heading of mid-step, yaw + w dt / 2. A servo with kv much larger
than kp dt and its target `lead` ahead moves at that speed: kp (x* - x) = kv v in mid-step. tau = mass / kv is
its delay; with the term in tau the velocity in a curve points along u, without lateral slip.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from robo_rl.core.shapes import Float
from robo_rl.core.spec import ActionSpec
from sim.bodies.protocol import CONTROL_HZ, DriveStart, SceneTask
from sim.engines.protocol import Physics, Start
from sim.engines.scene import Scene
from sim.mobile.base import BaseRobot
from sim.mobile.surroundings import Surroundings
from sim.mobile.view import BaseView, BaseWiring, laser_of

MODES = ("twist",)


@runtime_checkable
class BaseTask(SceneTask, Protocol):
    """Members that a base needs of a task. k = episodes that start, u = uniform numbers of each, g = numbers
    of its goal.
    """

    numbers: int  # u
    cloud_m: tuple[
        tuple[float, float, float], tuple[float, float, float]
    ]  # point clouds are cropped to this box

    def start(
        self, uniform: Float[Tensor, "k u"], wiring: BaseWiring
    ) -> tuple[Float[Tensor, "k 3"], Start, Float[Tensor, "k g"]]:
        """Pose of the base (x [m], y [m], heading [rad]), start state of everything else, and the goal.

        uniform: in (0, 1).
        """
        ...

    def expert(self, view: BaseView, base: BaseRobot) -> Float[Tensor, "n 2"]:
        """Forward [m/s] and turning speed [rad/s] of the expert."""
        ...


class BaseDrive:
    """See `sim.bodies.protocol.Drive`. Its memory is the commanded speed."""

    def __init__(self, scene: Scene, base: BaseRobot, task: BaseTask, like: Tensor) -> None:
        self._base, self._task = base, task
        self.wiring = BaseWiring(scene, like, base, Surroundings(scene, laser_of(scene)[2], like))
        self.numbers, self.cloud_m = task.numbers, task.cloud_m
        self.wheels = Wheels(scene, base, like)
        self.action = self.wheels.action

    def view(self, physics: Physics, goal: Float[Tensor, "n g"]) -> BaseView:
        return BaseView(physics, self.wiring, goal)

    def start(self, uniform: Float[Tensor, "k u"]) -> DriveStart:
        pose, start, goal = self._task.start(uniform, self.wiring)
        start.qpos[:, self.wiring.pose] = pose
        start.ctrl[:, self.wiring.servos] = pose
        return DriveStart(start, goal, pose.new_zeros(len(pose), 2))

    def command(
        self, memory: Float[Tensor, "n 2"], action: Float[Tensor, "n 2"], view: BaseView
    ) -> tuple[Float[Tensor, "n nu"], Float[Tensor, "n 2"]]:
        twist = self.wheels.limited_twist(memory, action)
        ctrl = action.new_zeros(len(action), self.wiring.scene.model.nu)
        ctrl[:, self.wiring.servos] = self.wheels.targets(twist, view.xy_m, view.yaw_rad)
        return ctrl, twist

    def script(self, view: BaseView) -> Float[Tensor, "n 2"]:
        return self.action.normalize(self._task.expert(view, self._base)).clamp(-1.0, 1.0)

    def from_script(
        self, wanted: Float[Tensor, "n 2"], view: BaseView, memory: Tensor
    ) -> Float[Tensor, "n 2"]:
        return self.action.denormalize(wanted)


class Wheels:
    """Servo targets from commanded speeds."""

    def __init__(self, scene: Scene, base: BaseRobot, like: Tensor) -> None:
        self._base, self._dt_s = base, 1.0 / CONTROL_HZ
        self.action = ActionSpec(
            (-base.backward_m_s, -base.turn_rad_s),
            (base.forward_m_s, base.turn_rad_s),
            "forward m/s, turn rad/s",
        )
        bias = scene.model.actuator_biasprm[[scene.ctrl(name) for name in base.joints]]
        self._lead_s = like.new_tensor(bias[:, 2] / bias[:, 1] + 0.5 * self._dt_s)
        self._tau_s = float(scene.model.body_subtreemass[scene.body("base")] / -bias[0, 2])
        self._rise = like.new_tensor([base.rise_m_s2, base.rise_rad_s2]) * self._dt_s

    def limited_twist(
        self, before: Float[Tensor, "n 2"], action: Float[Tensor, "n 2"]
    ) -> Float[Tensor, "n 2"]:
        """Forward and turning speed within the limits of rate and wheels."""
        twist = before + (action - before).maximum(-self._rise).minimum(self._rise)
        rim = twist[:, 0].abs() + 0.5 * self._base.track_m * twist[:, 1].abs()  # speed of the faster wheel
        return twist * (self._base.wheel_m_s / rim.clamp_min(self._base.wheel_m_s))[:, None]

    def targets(
        self, twist: Float[Tensor, "n 2"], xy_m: Float[Tensor, "n 2"], yaw_rad: Float[Tensor, " n"]
    ) -> Float[Tensor, "n 3"]:
        """Targets of the servos of x, y and heading."""
        forward, turn = twist.unbind(-1)
        along = yaw_rad + 0.5 * self._dt_s * turn
        inward, c, s = self._tau_s * forward * turn, along.cos(), along.sin()
        speed = torch.stack([forward * c - inward * s, forward * s + inward * c, turn], -1)
        return torch.cat([xy_m, yaw_rad[:, None]], -1) + speed * self._lead_s
