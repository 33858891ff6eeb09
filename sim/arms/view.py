"""View of n worlds for arm tasks and their experts; the arm's columns in the arrays of an engine."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from torch import Tensor

from robo_rl.core.errors import ConfigError
from robo_rl.core.shapes import Float
from sim.arms.chain import KinematicChain, bodies_down_to
from sim.arms.robot import ArmRobot
from sim.bodies.pose import Pose
from sim.bodies.scene_view import SceneColumns, SceneView, together
from sim.engines.protocol import Physics, Start


@dataclass(frozen=True)
class Wiring(SceneColumns):
    """Columns of the arm in an engine's arrays."""

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

    @cached_property
    def finger_touch(self) -> Any:
        """Columns of touch_n: the touch sensor of each finger. Raises ConfigError for a finger that has none
        or several.
        """
        return together([self._touch_of(finger) for finger in self.robot.fingers])

    def _touch_of(self, finger: str) -> int:
        model = self.scene.model
        self.scene.qvel(finger)  # raises for an unknown joint
        moved = int(model.joint(finger).bodyid[0])
        on_it = [
            i
            for i, name in enumerate(self.scene.touch)
            if moved in bodies_down_to(model, int(model.site_bodyid[model.sensor(name).objid[0]]))
        ]
        if len(on_it) != 1:
            raise ConfigError(
                f"{len(on_it)} touch sensors of {self.robot.name} lie on its finger '{finger}'; tasks that "
                'grip need one on each finger: <touch name="left" site="left"/> in <sensor>, its site around '
                "the fingertip."
            )
        return on_it[0]

    def start(self, q_rad: Float[Tensor, "k j"], opening_m: float, width_m: float | None = None) -> Start:
        """Start state with the arm at rest at `q_rad`, fingers at `width_m` and driven to `opening_m` (from
        the middle).
        """
        start = self.as_written(len(q_rad))
        start.qpos[:, self.arm] = q_rad
        start.qpos[:, self.fingers] = opening_m if width_m is None else width_m
        start.ctrl[:, self.servos] = q_rad
        start.ctrl[:, self.grips] = opening_m
        return start


class View(SceneView):
    """View of n worlds for arm tasks and their experts."""

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
    def finger_touch_n(self) -> Float[Tensor, "n f"]:
        """Normal force on the touch sensor of each finger [N]."""
        felt: Tensor = self.physics.touch_n[:, self._wiring.finger_touch]
        return felt

    @property
    def links(self) -> Pose:
        rows = self._wiring.chain.links
        return Pose(self.physics.body_m[:, rows], self.physics.body_quat[:, rows])
