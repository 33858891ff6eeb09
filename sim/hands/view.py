"""View of n worlds for tasks of a hand: joints, fingertips, and the fingertips' Jacobian.

f = fingers, j = joints of one finger; f j = joints of the hand, finger by finger.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from robo_rl.core.shapes import Bool, Float, Int
from sim.bodies.rotation import cross, rotate
from sim.bodies.scene_view import SceneColumns, SceneView
from sim.engines.protocol import Physics
from sim.engines.scene import Scene
from sim.hands.robot import Hand

_FELT_N = 0.02  # minimum force of a touch


@dataclass(frozen=True)
class HandWiring(SceneColumns):
    """Columns of the hand in an engine's arrays, and its dimensions.

    Everything is computed before compilation: tensors made while a compiler traces have no values.
    """

    hand: Hand
    joints: Any  # columns of qpos
    speeds: Any  # of qvel
    servos: Any  # of ctrl
    skins: Int[Tensor, " f"]  # of touch_n
    links: Int[Tensor, " fj"]  # rows of the bodies that the joints turn
    axes: Float[Tensor, "fj 3"]  # of the joints, in their bodies
    ends: Int[Tensor, " f"]  # rows of the bodies that carry the tips
    tips_m: Float[Tensor, "f 3"]  # in those
    low_rad: Float[Tensor, " fj"]
    high_rad: Float[Tensor, " fj"]
    home_rad: Float[Tensor, " fj"]


def wire(scene: Scene, hand: Hand, like: Tensor) -> HandWiring:
    """Columns of the scene's hand. Raises UnknownNameError for a missing name."""
    columns, model = SceneColumns(scene, like), scene.model
    joints = [model.joint(name) for name in hand.joints]
    tips = [scene.site(f"{finger}_tip") for finger in hand.fingers]
    return HandWiring(
        scene, like, hand,
        columns.qpos_of(hand.joints), columns.qvel_of(hand.joints), columns.ctrl_of(hand.joints),
        torch.tensor([scene.touch.index(f"{finger}_skin") for finger in hand.fingers], device=like.device),
        torch.tensor([int(joint.bodyid[0]) for joint in joints], device=like.device),
        like.new_tensor([joint.axis.tolist() for joint in joints]),
        torch.tensor([body for body, _, _ in tips], device=like.device),
        like.new_tensor([at_m.tolist() for _, at_m, _ in tips]),
        like.new_tensor([scene.joint_range(name)[0] for name in hand.joints]),
        like.new_tensor([scene.joint_range(name)[1] for name in hand.joints]),
        like.new_tensor(hand.home_rad),
    )  # fmt: skip


class HandView(SceneView):
    """View of n worlds. Positions in m in the world frame."""

    def __init__(self, physics: Physics, wiring: HandWiring, goal: Float[Tensor, "n g"]) -> None:
        super().__init__(physics, wiring, goal)
        self._wiring = wiring

    @property
    def q_rad(self) -> Float[Tensor, "n fj"]:
        return self.physics.qpos[:, self._wiring.joints]

    @property
    def dq_rad_s(self) -> Float[Tensor, "n fj"]:
        return self.physics.qvel[:, self._wiring.speeds]

    @property
    def touching(self) -> Bool[Tensor, "n f"]:
        """True where the last link of a finger touches anything."""
        felt: Tensor = self.physics.touch_n[:, self._wiring.skins] > _FELT_N
        return felt

    @property
    def tips_m(self) -> Float[Tensor, "n f 3"]:
        rows = self._wiring.ends
        return self.physics.body_m[:, rows] + rotate(self.physics.body_quat[:, rows], self._wiring.tips_m)

    @property
    def rest_rad(self) -> Float[Tensor, " fj"]:
        return self._wiring.home_rad

    def jacobian(self) -> Float[Tensor, "n f 3 j"]:
        """d tip / d joints of its finger: axis x (tip - joint)."""
        rows, n, f = self._wiring.links, len(self.physics.qpos), len(self._wiring.hand.fingers)
        axis = rotate(self.physics.body_quat[:, rows], self._wiring.axes).view(n, f, -1, 3)
        lever = self.tips_m[:, :, None] - self.physics.body_m[:, rows].view(n, f, -1, 3)
        return cross(axis, lever).transpose(2, 3)
