"""Drawer: grasp the knob and pull the drawer open by 15 cm.

Randomisation: position of the cabinet in a field of 6 by 30 cm; start pose of the arm. Observation `state`
(16,): tool position (3), opening of the fingers (1), knob relative to the tool (3), opening of the drawer (1)
and its speed (1), joint positions (7); m, m/s and rad in the world. Success: open by 15 cm for 3 steps in a
row. Dense reward: weighted terms of nearness to the knob, contact of both fingers, and opening.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from robo_rl.core.shapes import Bool, Float
from sim.arms.control import Reach
from sim.arms.view import View, Wiring
from sim.bodies.pose import Pose
from sim.engines.protocol import Start
from sim.tasks.scripted import between, toward

_KNOB_M = (-0.12, 0.0, 0.05)  # in the drawer's frame


@dataclass(frozen=True)
class DrawerTask:
    """The cabinet stands anywhere in its field; the drawer starts closed."""

    name: str = "drawer"
    scene: str = "drawer.xml"
    numbers: int = 2
    max_steps: int = 80
    hold_steps: int = 3
    reach: Reach = field(default_factory=lambda: Reach(low_m=(0.3, -0.3, 0.1)))
    grips: bool = True
    ready_m: tuple[tuple[float, float, float], tuple[float, float, float]] = (
        (0.42, -0.1, 0.26),
        (0.56, 0.1, 0.36),
    )
    open_m: float = 0.15
    obs_parts: tuple[tuple[str, int, str], ...] = (
        ("tool", 3, "m"), ("opening", 1, "m"), ("knob from tool", 3, "m"), ("drawer", 1, "m"),
        ("drawer speed", 1, "m/s"), ("joints", 7, "rad"),
    )  # fmt: skip
    weights: Mapping[str, float] = field(default_factory=lambda: {"near": 0.3, "pinched": 0.2, "open": 0.5})

    def edit(self, spec: Any) -> None:
        """Nothing to change: the task has no settings."""

    def start(
        self, uniform: Float[Tensor, "k 2"], q_rad: Float[Tensor, "k j"], tool: Pose, wiring: Wiring
    ) -> tuple[Start, Float[Tensor, "k 0"]]:
        start = wiring.start(q_rad, wiring.robot.open_m)
        place = [between(uniform[:, 0], 0.72, 0.78), between(uniform[:, 1], -0.15, 0.15)]
        start.fixture_m[:, wiring.scene.fixture("cabinet"), :2] = torch.stack(place, -1).to(q_rad)
        return start, q_rad[:, :0]

    def observe(self, view: View) -> Float[Tensor, "n 16"]:
        drawer_m, speed_m_s = view.joint("drawer")
        parts = [view.tool.m, view.opening_m[:, None], self._knob(view) - view.tool.m, drawer_m[:, None]]
        return torch.cat([*parts, speed_m_s[:, None], view.q_rad], -1)

    def solved(self, view: View) -> Bool[Tensor, " n"]:
        solved: Tensor = view.joint("drawer")[0] >= self.open_m
        return solved

    def terms(self, view: View) -> dict[str, Float[Tensor, " n"]]:
        return {
            "near": 1.0 - torch.tanh(5.0 * (self._knob(view) - view.tool.m).norm(dim=-1)),
            "pinched": (view.finger_touch_n > 0.1).all(1).to(view.tool.m),
            "open": (view.joint("drawer")[0] / self.open_m).clamp(0.0, 1.0),
        }

    def expert(self, view: View, reach: Reach) -> Float[Tensor, "n 4"]:
        """Move over the knob, down, close the fingers, and pull."""
        offset_m = self._knob(view) - view.tool.m
        aside_m = offset_m[:, :2].norm(dim=-1)
        held = (view.finger_touch_n > 0.5).all(1)
        there = (aside_m < 0.01) & (-offset_m[:, 2] < 0.01)
        above_m = torch.where((aside_m < 0.015) | there, 0.0, 0.07)
        down = self._knob(view) + torch.nn.functional.pad(above_m[:, None], (2, 0))
        pull = view.tool.m + view.tool.m.new_tensor([-0.06, 0.0, 0.0])
        move = toward(torch.where(held[:, None], pull, down), view, reach)
        grip = torch.where(there | held, -1.0, 1.0).to(move)
        return torch.cat([move, grip[:, None]], -1)

    def _knob(self, view: View) -> Float[Tensor, "n 3"]:
        """Position of the knob [m, world]; the cabinet is never turned, so its axes are the world's."""
        return view.body("drawer").m + view.tool.m.new_tensor(_KNOB_M)
