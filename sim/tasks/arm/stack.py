"""Stack: put a cube of 4 cm on one of 5 cm, and release it.

Randomisation: positions and headings of both cubes; start pose of the arm. Observation `state` (26,): tool
position (3) and heading as cos, sin (2); opening of the fingers (1); cube relative to the tool (3), its
height (1), its heading a relative to the tool's as cos 4a, sin 4a (2); lower cube relative to the upper (3)
and its height (1); joint positions (7); velocity of the cube (3); m, m/s and rad in the world. Success: the
cube stands on the other and no finger touches it, for 5 steps in a row. Dense reward: weighted terms of
nearness, contact of both fingers, cube over the other, and success.
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
from sim.arms.view import View, Wiring
from sim.bodies.pose import Pose
from sim.bodies.rotation import about_z
from sim.engines.protocol import Start
from sim.tasks.arm.grasp import around, heading, quarter_turn_left
from sim.tasks.scripted import between, toward, turning

RISE_M, SLACK_M = 0.045, 0.006  # height of the upper cube's centre over the lower one's; its tolerance
ASIDE_M = 0.02  # largest horizontal distance of the centres


@dataclass(frozen=True)
class StackTask:
    """The cubes lie in different halves of a field of 16 by 28 cm, at least 8 cm apart, sides at random."""

    name: str = "stack"
    scene: str = "stack.xml"
    numbers: int = 7
    max_steps: int = 120
    hold_steps: int = 5
    reach: Reach = field(default_factory=lambda: Reach(turns="yaw", step_rad=0.15, low_m=(0.25, -0.3, 0.008)))
    grips: bool = True
    ready_m: tuple[tuple[float, float, float], tuple[float, float, float]] = (
        (0.42, -0.1, 0.18),
        (0.58, 0.1, 0.28),
    )
    obs_parts: tuple[tuple[str, int, str], ...] = (
        ("tool", 3, "m"),
        ("heading", 2, "1"),
        ("opening", 1, "m"),
        ("cube from tool", 3, "m"),
        ("cube height", 1, "m"),
        ("cube heading x4", 2, "1"),
        ("base from cube", 3, "m"),
        ("base height", 1, "m"),
        ("joints", 7, "rad"),
        ("cube velocity", 3, "m/s"),
    )
    weights: Mapping[str, float] = field(
        default_factory=lambda: {"near": 0.2, "pinched": 0.1, "over": 0.3, "stacked": 0.4}
    )

    def edit(self, spec: Any) -> None:
        """Nothing to change: the task has no settings."""

    def start(
        self, uniform: Float[Tensor, "k 7"], q_rad: Float[Tensor, "k j"], tool: Pose, wiring: Wiring
    ) -> tuple[Start, Float[Tensor, "k 0"]]:
        start = wiring.start(q_rad, wiring.robot.open_m)
        side = torch.where(uniform[:, 6] < 0.5, -1.0, 1.0)
        for i, (name, sign) in enumerate((("cube", -side), ("base", side))):
            columns = wiring.loose[name][0]
            place = [
                between(uniform[:, 3 * i], 0.42, 0.58),
                sign * between(uniform[:, 3 * i + 1], 0.04, 0.14),
            ]
            start.qpos[:, columns.start : columns.start + 2] = torch.stack(place, -1).to(q_rad)
            turn = about_z(between(uniform[:, 3 * i + 2], -math.pi, math.pi))
            start.qpos[:, columns.start + 3 : columns.stop] = turn.to(q_rad)
        return start, q_rad[:, :0]

    def observe(self, view: View) -> Float[Tensor, "n 26"]:
        cube, base, left = (
            view.object_pose("cube").m,
            view.object_pose("base").m,
            quarter_turn_left(view, "cube"),
        )
        parts = [
            view.tool.m, heading(view), view.opening_m[:, None], cube - view.tool.m, cube[:, 2:],
            (4 * left).cos()[:, None], (4 * left).sin()[:, None], base - cube, base[:, 2:], view.q_rad,
            view.speed_m_s("cube"),
        ]  # fmt: skip
        return torch.cat(parts, -1)

    def solved(self, view: View) -> Bool[Tensor, " n"]:
        return self._stands(view) & (view.finger_touch_n < 0.05).all(1)

    def terms(self, view: View) -> dict[str, Float[Tensor, " n"]]:
        cube = view.object_pose("cube").m
        goal_m = view.object_pose("base").m + cube.new_tensor([0.0, 0.0, RISE_M])
        pinched = (view.finger_touch_n > 0.1).all(1).to(cube)
        return {
            "near": 1.0 - torch.tanh(5.0 * (cube - view.tool.m).norm(dim=-1)),
            "pinched": pinched,
            "over": 1.0 - torch.tanh(5.0 * (goal_m - cube).norm(dim=-1)),
            "stacked": self._stands(view).to(cube),
        }

    def expert(self, view: View, reach: Reach) -> Float[Tensor, "n 5"]:
        """Grasp as in lift; up, over the other cube, down, and release the cube where it stands."""
        cube, base, left = (
            view.object_pose("cube").m,
            view.object_pose("base").m,
            quarter_turn_left(view, "cube"),
        )
        grasp_m, there = around(view, "cube", left)
        held = (view.finger_touch_n > 0.5).all(1)
        stands = self._stands(view)
        offset = base - cube
        aside_m = offset[:, :2].norm(dim=-1)
        low = (-offset[:, 2] < RISE_M + 0.02) & (aside_m > ASIDE_M)
        height_m = torch.where(aside_m < 0.006, RISE_M - 0.004, RISE_M + 0.03)
        move_m = torch.cat([offset[:, :2] * (~low)[:, None], (offset[:, 2] + height_m)[:, None]], -1)
        carry_m = view.tool.m + move_m.clamp(-0.07, 0.07)
        away_m = view.tool.m + view.tool.m.new_tensor([0.0, 0.0, 0.1])
        goal_m = torch.where(stands[:, None], away_m, torch.where(held[:, None], carry_m, grasp_m))
        turn = torch.where(held | stands, 0.0, turning(left, reach))
        grip = torch.where((there | held) & ~stands, -1.0, 1.0).to(turn)
        return torch.cat([toward(goal_m, view, reach), turn[:, None], grip[:, None]], -1)

    def _stands(self, view: View) -> Bool[Tensor, " n"]:
        """Mask of worlds where the cube stands on the other."""
        offset = view.object_pose("cube").m - view.object_pose("base").m
        level: Tensor = (offset[:, 2] - RISE_M).abs() < SLACK_M
        stands: Tensor = level & (offset[:, :2].norm(dim=-1) < ASIDE_M)
        return stands
