"""Reach: move the tool to a point in the air and hold it there.

Randomisation: goal in a box of 25 by 50 by 35 cm; start pose of the arm. Observation `state` (20,): tool
position (3), goal relative to it (3), joint positions (7) and speeds (7); m, rad and rad/s in the world.
Success: the tool is within `radius_m` of the goal for 5 steps in a row. Dense reward: weighted terms of
nearness and success.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from robo_rl.core.errors import ConfigError
from robo_rl.core.shapes import Bool, Float
from sim.arms.control import Reach
from sim.arms.view import View, Wiring
from sim.bodies.pose import Pose
from sim.engines.protocol import Start
from sim.tasks.scripted import between, toward

Corner = tuple[float, float, float]


@dataclass(frozen=True)
class ReachTask:
    """`radius_m`: distance that counts as reached, 0.001 to 0.1; ConfigError otherwise."""

    radius_m: float = 0.01
    name: str = "reach"
    scene: str = "reach.xml"
    numbers: int = 3
    max_steps: int = 60
    hold_steps: int = 5
    reach: Reach = field(default_factory=Reach)
    grips: bool = False
    ready_m: tuple[Corner, Corner] = ((0.42, -0.1, 0.18), (0.52, 0.1, 0.32))
    goals_m: tuple[Corner, Corner] = ((0.38, -0.25, 0.1), (0.63, 0.25, 0.45))
    obs_parts: tuple[tuple[str, int, str], ...] = (
        ("tool", 3, "m"), ("goal from tool", 3, "m"), ("joints", 7, "rad"), ("joint speeds", 7, "rad/s"),
    )  # fmt: skip
    weights: Mapping[str, float] = field(default_factory=lambda: {"near": 0.7, "there": 0.3})

    def __post_init__(self) -> None:
        if not 0.001 <= self.radius_m <= 0.1:
            raise ConfigError(f"radius_m is {self.radius_m:g}; expected 0.001 to 0.1 m.")

    def edit(self, spec: Any) -> None:
        """Draw the goal as a ball with the radius of success."""
        spec.geom("goal").size[0] = self.radius_m

    def start(
        self, uniform: Float[Tensor, "k 3"], q_rad: Float[Tensor, "k j"], tool: Pose, wiring: Wiring
    ) -> tuple[Start, Float[Tensor, "k 3"]]:
        start = wiring.start(q_rad, 0.0)
        goal_m = torch.stack(
            [
                between(uniform[:, i].to(q_rad), low, high)
                for i, (low, high) in enumerate(zip(*self.goals_m, strict=True))
            ],
            -1,
        )
        start.fixture_m[:, wiring.scene.fixture("goal")] = goal_m
        return start, goal_m

    def observe(self, view: View) -> Float[Tensor, "n 20"]:
        return torch.cat([view.tool.m, view.goal - view.tool.m, view.q_rad, view.dq_rad_s], -1)

    def solved(self, view: View) -> Bool[Tensor, " n"]:
        return self._away_m(view) <= self.radius_m

    def terms(self, view: View) -> dict[str, Float[Tensor, " n"]]:
        away_m = self._away_m(view)
        return {"near": 1.0 - torch.tanh(5.0 * away_m), "there": (away_m <= self.radius_m).to(away_m)}

    def expert(self, view: View, reach: Reach) -> Float[Tensor, "n 3"]:
        """Move straight to the goal."""
        return toward(view.goal, view, reach)

    def _away_m(self, view: View) -> Float[Tensor, " n"]:
        away_m: Tensor = (view.goal - view.tool.m).norm(dim=-1)
        return away_m
