"""Lift: grasp a cube on the table and hold it 10 cm above its place.

Randomisation: position and heading of the cube; start pose of the arm. Observation `state` (22,): tool
position (3) and heading as cos, sin (2); opening of the fingers (1); cube relative to the tool (3), its
height (1), its heading a relative to the tool's as cos 4a, sin 4a (2), equal for all four faces; joint
positions (7); velocity of the cube (3); m, m/s and rad in the world. Success: the cube's centre at 12 cm or
higher for 5 steps in a row. Dense reward: weighted terms of nearness, contact of both fingers, and height.
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

HALF_M = 0.02  # half an edge of the cube


@dataclass(frozen=True)
class LiftTask:
    """The cube lies anywhere in a field of 20 by 30 cm, at any heading."""

    name: str = "lift"
    scene: str = "lift.xml"
    numbers: int = 3
    max_steps: int = 80
    hold_steps: int = 5
    reach: Reach = field(default_factory=lambda: Reach(turns="yaw", step_rad=0.15, low_m=(0.25, -0.3, 0.008)))
    grips: bool = True
    ready_m: tuple[tuple[float, float, float], tuple[float, float, float]] = (
        (0.42, -0.12, 0.16),
        (0.58, 0.12, 0.28),
    )
    field_m: tuple[tuple[float, float], tuple[float, float]] = ((0.4, -0.15), (0.6, 0.15))
    height_m: float = 0.12
    obs_parts: tuple[tuple[str, int, str], ...] = (
        ("tool", 3, "m"),
        ("heading", 2, "1"),
        ("opening", 1, "m"),
        ("cube from tool", 3, "m"),
        ("cube height", 1, "m"),
        ("cube heading x4", 2, "1"),
        ("joints", 7, "rad"),
        ("cube velocity", 3, "m/s"),
    )
    weights: Mapping[str, float] = field(default_factory=lambda: {"near": 0.3, "pinched": 0.2, "lifted": 0.5})

    def edit(self, spec: Any) -> None:
        """Nothing to change: the task has no settings."""

    def start(
        self, uniform: Float[Tensor, "k 3"], q_rad: Float[Tensor, "k j"], tool: Pose, wiring: Wiring
    ) -> tuple[Start, Float[Tensor, "k 0"]]:
        start = wiring.start(q_rad, wiring.robot.open_m)
        (low_x, low_y), (high_x, high_y) = self.field_m
        cube = wiring.loose["cube"][0]
        place = [between(uniform[:, 0], low_x, high_x), between(uniform[:, 1], low_y, high_y)]
        start.qpos[:, cube.start : cube.start + 2] = torch.stack(place, -1).to(q_rad)
        start.qpos[:, cube.start + 3 : cube.stop] = about_z(between(uniform[:, 2], -math.pi, math.pi)).to(
            q_rad
        )
        return start, q_rad[:, :0]

    def observe(self, view: View) -> Float[Tensor, "n 22"]:
        cube, left = view.object_pose("cube"), quarter_turn_left(view, "cube")
        parts = [
            view.tool.m,
            heading(view),
            view.opening_m[:, None],
            cube.m - view.tool.m,
            cube.m[:, 2:],
            (4 * left).cos()[:, None],
            (4 * left).sin()[:, None],
            view.q_rad,
            view.speed_m_s("cube"),
        ]
        return torch.cat(parts, -1)

    def solved(self, view: View) -> Bool[Tensor, " n"]:
        return view.object_pose("cube").m[:, 2] >= self.height_m

    def terms(self, view: View) -> dict[str, Float[Tensor, " n"]]:
        cube = view.object_pose("cube").m
        return {
            "near": 1.0 - torch.tanh(5.0 * (cube - view.tool.m).norm(dim=-1)),
            "pinched": (view.finger_touch_n > 0.1).all(1).to(cube),
            "lifted": ((cube[:, 2] - HALF_M) / (self.height_m - HALF_M)).clamp(0.0, 1.0),
        }

    def expert(self, view: View, reach: Reach) -> Float[Tensor, "n 5"]:
        """Move over the cube and align with it, down, close, up; the phase follows from what is observed."""
        left = quarter_turn_left(view, "cube")
        grasp_m, there = around(view, "cube", left)
        held = (view.finger_touch_n > 0.5).all(1)
        up_m = view.tool.m + view.tool.m.new_tensor([0.0, 0.0, 0.1])
        move = toward(torch.where(held[:, None], up_m, grasp_m), view, reach)
        turn = torch.where(held, 0.0, turning(left, reach))
        grip = torch.where(there | held, -1.0, 1.0).to(move)
        return torch.cat([move, turn[:, None], grip[:, None]], -1)
