"""Kinematic chain of an arm in batches: forward kinematics, Jacobian and inverse kinematics.

Products of exponentials over the compiled model's frames, for any arm with hinges. Positions in
m, in the world frame; j = joints; links are the bodies of the joints, the base first.
"""

from __future__ import annotations

from typing import Any

import mujoco
import numpy as np
import torch
from torch import Tensor

from robo_rl.core.errors import ConfigError
from robo_rl.core.shapes import Float
from sim.arms.robot import ArmRobot
from sim.bodies.pose import Pose, pose_error
from sim.bodies.rotation import cross, from_rotvec, multiply, rotate
from sim.engines.scene import Scene


class KinematicChain:
    """Geometry of one arm in one scene. Raises UnknownNameError for a joint or tool that the scene lacks, and
    ConfigError for joints that are no chain of hinges. Chains of the same numbers on one device are equal.
    """

    def __init__(
        self, scene: Scene, robot: ArmRobot, device: Any = "cpu", dtype: torch.dtype = torch.float64
    ) -> None:
        model = scene.model
        tool_body, tool_m, tool_quat = scene.site(robot.tool)
        self.bodies = bodies_down_to(model, tool_body)
        for name in robot.joints:
            scene.qvel(name)  # raises for an unknown joint
        self.links = [int(model.joint(name).bodyid[0]) for name in robot.joints]
        missing = [
            name for name, link in zip(robot.joints, self.links, strict=True) if link not in self.bodies
        ]
        if missing:
            raise ConfigError(
                f"The tool of {robot.name} does not hang on {', '.join(missing)}; name joints on its chain."
            )
        ids = [int(model.joint(name).id) for name in robot.joints]
        _check_hinges(model, robot, ids, [body for body in self.bodies if body in self.links] == self.links)

        def tensor(array: Any) -> Tensor:
            return torch.tensor(array, device=device, dtype=dtype)

        self.axis, self.anchor_m = (
            tensor(model.jnt_axis[ids]),
            tensor(model.jnt_pos[ids]),
        )  # (j, 3), in their links
        self._zero_rad = tensor(model.qpos0[model.jnt_qposadr[ids]])  # joint positions of the MJCF's own pose
        ranges = [scene.joint_range(name) for name in robot.joints]
        self.low_rad, self.high_rad = (tensor(limit) for limit in zip(*ranges, strict=True))
        self.tool = Pose(tensor(tool_m), tensor(tool_quat))
        self.tool_body = tool_body
        self._rest = {
            body: Pose(tensor(model.body_pos[body]), tensor(model.body_quat[body])) for body in self.bodies
        }
        numbers = (model.jnt_axis[ids], model.jnt_pos[ids], model.qpos0[model.jnt_qposadr[ids]], *ranges)
        numbers += (tool_m, tool_quat, model.body_pos[self.bodies], model.body_quat[self.bodies])
        links = tuple(body in self.links for body in self.bodies)
        self._key = (*(np.asarray(each).tobytes() for each in numbers), links, self.low_rad.device, dtype)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KinematicChain) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def place(self, q_rad: Float[Tensor, "n j"]) -> tuple[Pose, Pose]:
        """Poses of the tool and of the links (n, j, ...) at these joint positions."""
        n = len(q_rad)
        m, quat = q_rad.new_zeros(n, 3), q_rad.new_tensor([1.0, 0.0, 0.0, 0.0]).expand(n, 4)
        links: list[Pose] = []
        for body in self.bodies:
            rest = self._rest[body]
            m, quat = m + rotate(quat, rest.m.expand(n, 3)), multiply(quat, rest.quat.expand(n, 4))
            if body in self.links:
                i = self.links.index(body)
                turned = multiply(quat, from_rotvec(self.axis[i] * (q_rad[:, i : i + 1] - self._zero_rad[i])))
                m = (
                    m
                    + rotate(quat, self.anchor_m[i].expand(n, 3))
                    - rotate(turned, self.anchor_m[i].expand(n, 3))
                )
                quat = turned
                links.append(Pose(m, quat))
        tool = self.tool_pose(m, quat)
        return tool, Pose(
            torch.stack([link.m for link in links], 1), torch.stack([link.quat for link in links], 1)
        )

    def tool_pose(self, body_m: Float[Tensor, "n 3"], body_quat: Float[Tensor, "n 4"]) -> Pose:
        """Pose of the tool from the pose of the body that carries its site."""
        m = body_m + rotate(body_quat, self.tool.m)
        return Pose(m, multiply(body_quat, self.tool.quat))

    def jacobian(self, links: Pose, tool_m: Float[Tensor, "n 3"]) -> Float[Tensor, "n 6 j"]:
        """d (position, rotation vector) of the tool / d joints, in the world: (axis x (tool - anchor),
        axis).
        """
        axis = rotate(links.quat, self.axis)  # (n, j, 3)
        arm = tool_m.unsqueeze(1) - links.m - rotate(links.quat, self.anchor_m)
        return torch.cat([cross(axis, arm), axis], -1).transpose(1, 2)

    def inverse(
        self, goal: Pose, start_rad: Float[Tensor, "n j"], steps: int = 30, turned: bool = True
    ) -> tuple[Float[Tensor, "n j"], Float[Tensor, " n"]]:
        """Joint positions near `start_rad` that bring the tool to `goal`, and the remaining
        error (m + rad). turned: False for the position of `goal` alone.
        """
        q, rest, rows = start_rad, start_rad, 6 if turned else 3
        for _ in range(steps):
            tool, links = self.place(q)
            error, jacobian = pose_error(goal, tool)[:, :rows], self.jacobian(links, tool.m)[:, :rows]
            move = damped_step(jacobian, error, rest - q, 1e-2, 0.05)
            q = (q + move.clamp(-0.3, 0.3)).maximum(self.low_rad).minimum(self.high_rad)
        tool, _ = self.place(q)
        return q, pose_error(goal, tool)[:, :rows].norm(dim=-1)


def damped_step(
    jacobian: Float[Tensor, "n k j"],
    error: Float[Tensor, "n k"],
    posture: Float[Tensor, "n j"],
    damping: float,
    pull: float,
) -> Float[Tensor, "n j"]:
    """Damped least squares with a posture in the null space.

        dq = J# e + pull (posture - J# J posture),   J# = J' (J J' + damping^2 I)^-1

    (Buss, "Introduction to inverse kinematics", 2004, sections 7 and 8). posture: difference to the preferred
    joints.
    """
    square = jacobian @ jacobian.transpose(1, 2)
    square.diagonal(dim1=1, dim2=2).add_(damping**2)
    wanted = error.unsqueeze(-1) - pull * (jacobian @ posture.unsqueeze(-1))
    solved = solve_positive(square, wanted.squeeze(-1))
    return (jacobian * solved.unsqueeze(-1)).sum(1) + pull * posture


def solve_positive(matrix: Float[Tensor, "n k k"], right: Float[Tensor, "n k"]) -> Float[Tensor, "n k"]:
    """Solution x of A x = b for small symmetric positive A, by Cholesky's A = L L', written out over the
    batch.

    A batched library solver takes one matrix after another, which costs more than the rest of a control step;
    written out, it is a few dozen multiplications that a compiler fuses with the code around them.
    """
    low: list[list[Tensor]] = []
    half: list[Tensor] = []  # L half = b
    for i in range(right.shape[1]):
        row: list[Tensor] = []
        for j in range(i):
            row.append(_less(matrix[:, i, j], row, low[j]) / low[j][j])
        row.append(_less(matrix[:, i, i], row, row).clamp_min(1e-12).sqrt())
        half.append(_less(right[:, i], row, half) / row[i])
        low.append(row)
    x: list[Tensor] = []  # L' x = half, from the last to the first
    for i in reversed(range(right.shape[1])):
        below = [low[m][i] for m in reversed(range(i + 1, right.shape[1]))]
        x.append(_less(half[i], below, x) / low[i][i])
    return torch.stack(x[::-1], -1)


def _less(value: Tensor, first: list[Tensor], second: list[Tensor]) -> Tensor:
    """value - sum of first[m] second[m], up to the shorter length."""
    for a, b in zip(first, second, strict=False):
        value = value - a * b
    return value


def _check_hinges(model: Any, robot: ArmRobot, ids: list[int], in_order: bool) -> None:
    """Raise ConfigError for joints that these formulas do not cover."""
    for name, i in zip(robot.joints, ids, strict=True):
        if int(model.jnt_type[i]) != int(mujoco.mjtJoint.mjJNT_HINGE):
            raise ConfigError(
                f"The joint '{name}' of {robot.name} is no hinge; arms are commanded by hinges only."
            )
    if not in_order:
        raise ConfigError(
            f"The joints of {robot.name} are named {', '.join(robot.joints)}; expected one for each link, "
            "from the base to the tool."
        )


def bodies_down_to(model: Any, body: int) -> list[int]:
    """Bodies from the world's child down to this body."""
    path = []
    while body != 0:
        path.append(body)
        body = int(model.body_parentid[body])
    return path[::-1]
