"""Pick: an arm with a hand of four fingers grasps the named one of two objects on the table and lifts it.

Randomisation: the named object; positions of both, their sides, and the cube's heading; start pose of the
arm. Observation `state` (42,): tool position (3), the middle between the fingertips; the named object as (1,
0) for the cube or (0, 1) for the ball (2); the named object relative to the tool (3), its height (1), its
velocity (3); the other object relative to the tool (3); joint positions of arm (7) and hand (16); contact of
each fingertip (4); m, m/s and rad in the world. Success: the named object's centre at 12 cm or higher for 10
steps in a row. Dense reward: weighted terms of nearness, contact of the fingertips, and height.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from robo_rl.core.shapes import Bool, Float
from sim.arms.control import Reach
from sim.bodies.pose import Pose
from sim.bodies.rotation import about_z
from sim.engines.protocol import Start
from sim.hands.drive import LEASH_RAD
from sim.hands.mounted import ArmHandView, ArmHandWiring
from sim.tasks.arm_hand.words import PICK
from sim.tasks.scripted import between, toward
from sim.tasks.variants import TaskVariants

HALF_M = {"cube": 0.025, "ball": 0.028}  # half a height of each object


@dataclass(frozen=True)
class PickTask:
    """The objects lie in different halves of a field of 16 by 32 cm, sides at random, 16 cm apart or more."""

    name: str = "pick"
    scene: str = "pick.xml"
    numbers: int = 7
    max_steps: int = 120
    hold_steps: int = 10
    reach: Reach = field(default_factory=lambda: Reach(low_m=(0.25, -0.3, 0.021)))
    grips: bool = True
    ready_m: tuple[tuple[float, float, float], tuple[float, float, float]] = (
        (0.42, -0.1, 0.2),
        (0.58, 0.1, 0.26),
    )
    height_m: float = 0.12
    carry_m: float = 0.18  # height at which the expert holds an object
    near_m: float = 0.055  # most between an object's centre and a fingertip on it
    below_m: float = 0.004  # depth below an object's centre at which the expert grasps
    above_m: float = 0.1  # height over an object from which the hand goes down
    obs_parts: tuple[tuple[str, int, str], ...] = (
        ("tool", 3, "m"),
        ("named", 2, "1"),
        ("object from tool", 3, "m"),
        ("object height", 1, "m"),
        ("object velocity", 3, "m/s"),
        ("other from tool", 3, "m"),
        ("joints", 7, "rad"),
        ("finger joints", 16, "rad"),
        ("touching", 4, "1"),
    )
    variants: TaskVariants = PICK
    weights: Mapping[str, float] = field(default_factory=lambda: {"near": 0.3, "grasped": 0.2, "lifted": 0.5})

    def edit(self, spec: Any) -> None:
        """Nothing to change: the task has no settings."""

    def start(
        self, uniform: Float[Tensor, "k 7"], q_rad: Float[Tensor, "k j"], tool: Pose, wiring: ArmHandWiring
    ) -> tuple[Start, Float[Tensor, "k 1"]]:
        """The goal is the number of the named object."""
        uniform = uniform.to(q_rad)
        start = wiring.opened(q_rad)
        side = torch.where(uniform[:, 1] < 0.5, -1.0, 1.0).to(q_rad)
        for i, (name, sign) in enumerate((("cube", -side), ("ball", side))):
            columns = wiring.loose[name][0]
            place = [
                between(uniform[:, 2 + 2 * i], 0.42, 0.58),
                sign * between(uniform[:, 3 + 2 * i], 0.08, 0.16),
            ]
            start.qpos[:, columns.start : columns.start + 2] = torch.stack(place, -1)
        cube = wiring.loose["cube"][0]
        start.qpos[:, cube.start + 3 : cube.stop] = about_z(between(uniform[:, 6], -math.pi, math.pi))
        return start, self.variants.number(uniform[:, :1])

    def observe(self, view: ArmHandView) -> Float[Tensor, "n 42"]:
        target, other = self._objects(view, view.object_pose("cube").m, view.object_pose("ball").m)
        speed, _ = self._objects(view, view.speed_m_s("cube"), view.speed_m_s("ball"))
        parts = [
            view.tool.m, 1.0 - view.goal, view.goal, target - view.tool.m, target[:, 2:], speed,
            other - view.tool.m, view.q_rad, view.hand.q_rad, view.hand.touching.to(target),
        ]  # fmt: skip
        return torch.cat(parts, -1)

    def solved(self, view: ArmHandView) -> Bool[Tensor, " n"]:
        return self.target_m(view)[:, 2] >= self.height_m

    def terms(self, view: ArmHandView) -> dict[str, Float[Tensor, " n"]]:
        target = self.target_m(view)
        low_m = self._objects(view, *(target.new_full((len(target), 1), half) for half in HALF_M.values()))[0]
        return {
            "near": 1.0 - torch.tanh(5.0 * (target - view.tool.m).norm(dim=-1)),
            "grasped": self._gripping(view).to(target).mean(-1),
            "lifted": ((target[:, 2] - low_m[:, 0]) / (self.height_m - low_m[:, 0])).clamp(0.0, 1.0),
        }

    def expert(self, view: ArmHandView, reach: Reach) -> Float[Tensor, "n 19"]:
        """Move over the object, down, close the hand, up; the phase follows from what is observed."""
        grasp_m = self.target_m(view) - view.tool.m.new_tensor([0.0, 0.0, self.below_m])
        offset_m = grasp_m - view.tool.m
        aside_m, down_m = offset_m[:, :2].norm(dim=-1), -offset_m[:, 2]
        there = (aside_m < 0.015) & (down_m < 0.008)
        over = aside_m < 0.025
        held = self._gripping(view).sum(1) >= 3
        above_m = torch.where(over | there, 0.0, self.above_m)
        goal_m = grasp_m + torch.nn.functional.pad(above_m[:, None], (2, 0))
        up_m = torch.nn.functional.pad(view.tool.m[:, :2], (0, 1), value=self.carry_m)
        move = toward(torch.where(held[:, None], up_m, goal_m), view, reach)
        closing = (there | held)[:, None]
        way_rad = torch.where(closing, view.closed_rad, view.open_rad) - view.hand.q_rad
        return torch.cat([move, (way_rad / LEASH_RAD).clamp(-1.0, 1.0)], -1)

    def target_m(self, view: ArmHandView) -> Float[Tensor, "n 3"]:
        """Position of the named object; see `InstructedTask`."""
        return self._objects(view, view.object_pose("cube").m, view.object_pose("ball").m)[0]

    def _gripping(self, view: ArmHandView) -> Bool[Tensor, "n f"]:
        """Mask of fingertips that touch something and are at the named object, not at the table beside it."""
        far_m = (view.hand.tips_m - self.target_m(view)[:, None]).norm(dim=-1)
        near: Tensor = far_m < self.near_m
        return view.hand.touching & near

    def _objects(
        self, view: ArmHandView, cube: Float[Tensor, "n k"], ball: Float[Tensor, "n k"]
    ) -> tuple[Float[Tensor, "n k"], Float[Tensor, "n k"]]:
        """What holds of the named object, and of the other one."""
        is_ball = view.goal > 0.5
        return torch.where(is_ball, ball, cube), torch.where(is_ball, cube, ball)
