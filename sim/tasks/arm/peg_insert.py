"""Peg insertion: put a peg, held with an error in the grasp, into a hole with sub-millimetre clearance.

Randomisation: position of the hole; error of the grasp, up to 3 mm and 0.1 rad; start pose of the arm.
Observation `state` (26,): tool (3) and tip of the peg (3) relative to the hole's opening; directions of the
peg (3) and the tool (3); joint positions (7) and speeds (7); m, rad and rad/s in the world. Success: the tip
is 3 cm deep in the hole for 3 steps in a row. Dense reward: weighted terms of nearness, upright peg, and
depth.
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
from sim.bodies.rotation import axis_z, cross, from_rotvec, multiply, rotate
from sim.engines.protocol import Start
from sim.tasks.scripted import between, toward, turning

RADIUS_M, TIP_M, HEAD_M = (
    0.008,
    0.062,
    0.01,
)  # of the peg: radius, middle to tip, half-width between the fingers
MOUTH_M, WALL_M = 0.06, 0.02  # of the hole: height of its opening, half-thickness of its walls


@dataclass(frozen=True)
class PegInsertTask:
    """`clearance_mm`: distance between shaft and wall on each side. Raises ConfigError outside 0 ... 5."""

    clearance_mm: float = 0.5
    name: str = "peg_insert"
    scene: str = "peg_insert.xml"
    numbers: int = 5
    max_steps: int = 100
    hold_steps: int = 3
    reach: Reach = field(default_factory=lambda: Reach("full", 0.02, 0.05, 0.03, 0.15, (0.3, -0.25, 0.02)))
    grips: bool = False
    ready_m: tuple[tuple[float, float, float], tuple[float, float, float]] = (
        (0.42, -0.1, 0.18),
        (0.58, 0.1, 0.26),
    )
    field_m: tuple[tuple[float, float], tuple[float, float]] = ((0.42, -0.12), (0.58, 0.12))
    # Half-widths of the grasp error: m along x and z of the tool, rad about its y.
    askew: tuple[float, float, float] = (0.003, 0.003, 0.1)
    depth_m: float = 0.03
    obs_parts: tuple[tuple[str, int, str], ...] = (
        ("tool from mouth", 3, "m"), ("tip from mouth", 3, "m"), ("peg axis", 3, "1"), ("tool axis", 3, "1"),
        ("joints", 7, "rad"), ("joint speeds", 7, "rad/s"),
    )  # fmt: skip
    weights: Mapping[str, float] = field(default_factory=lambda: {"near": 0.4, "upright": 0.1, "depth": 0.5})

    def __post_init__(self) -> None:
        if not 0.0 < self.clearance_mm <= 5.0:
            raise ConfigError(f"clearance_mm is {self.clearance_mm:g}; expected more than 0 and at most 5.")

    def edit(self, spec: Any) -> None:
        """Place the walls of the hole at the clearance."""
        half_m = RADIUS_M + 1e-3 * self.clearance_mm
        for name, sign in (("east", 1.0), ("west", -1.0)):
            spec.geom(f"wall_{name}").pos[0] = sign * (half_m + WALL_M)
            spec.geom(f"wall_{name}").size[1] = half_m + 2 * WALL_M
        for name, sign in (("north", 1.0), ("south", -1.0)):
            spec.geom(f"wall_{name}").pos[1] = sign * (half_m + WALL_M)
            spec.geom(f"wall_{name}").size[0] = half_m

    def start(
        self, uniform: Float[Tensor, "k 5"], q_rad: Float[Tensor, "k j"], tool: Pose, wiring: Wiring
    ) -> tuple[Start, Float[Tensor, "k 3"]]:
        start = wiring.start(q_rad, 0.0, HEAD_M)
        (low_x, low_y), (high_x, high_y) = self.field_m
        zero = torch.zeros_like(q_rad[:, 0])
        mouth_m = torch.stack(
            [
                between(uniform[:, 0], low_x, high_x).to(zero),
                between(uniform[:, 1], low_y, high_y).to(zero),
                zero + MOUTH_M,
            ],
            -1,
        )
        start.fixture_m[:, wiring.scene.fixture("hole"), :2] = mouth_m[:, :2]
        along, up, tilt = (
            (2.0 * uniform[:, 2 + i] - 1.0).to(zero) * size for i, size in enumerate(self.askew)
        )
        # The peg points down like the tool: half a turn about the tool's x, then the error about its y.
        down = tool.quat.new_tensor([0.0, 1.0, 0.0, 0.0]).expand_as(tool.quat)
        leaning = multiply(from_rotvec(torch.stack([zero, tilt, zero], -1)), down)
        peg = wiring.loose["peg"][0]
        start.qpos[:, peg.start : peg.start + 3] = tool.m + rotate(
            tool.quat, torch.stack([along, zero, up], -1)
        )
        start.qpos[:, peg.start + 3 : peg.stop] = multiply(tool.quat, leaning)
        return start, mouth_m

    def observe(self, view: View) -> Float[Tensor, "n 26"]:
        parts = [view.tool.m - view.goal, self._tip(view), self._axis(view), axis_z(view.tool.quat)]
        return torch.cat([*parts, view.q_rad, view.dq_rad_s], -1)

    def solved(self, view: View) -> Bool[Tensor, " n"]:
        tip_m = self._tip(view)
        return (tip_m[:, 2] <= -self.depth_m) & (tip_m[:, :2].abs().amax(1) <= RADIUS_M)

    def terms(self, view: View) -> dict[str, Float[Tensor, " n"]]:
        tip_m = self._tip(view)
        aside_m = tip_m[:, :2].norm(dim=-1)
        inside = (aside_m < RADIUS_M).to(tip_m)
        return {
            "near": 1.0 - torch.tanh(10.0 * tip_m.norm(dim=-1)),
            "upright": -self._axis(view)[:, 2].clamp_max(0.0),
            "depth": inside * (-tip_m[:, 2] / self.depth_m).clamp(0.0, 1.0),
        }

    def expert(self, view: View, reach: Reach) -> Float[Tensor, "n 6"]:
        """Make the peg upright, move its tip over the hole, lower it slowly, and push once it is in.

        A peg that meets the block at full speed slides up between the fingers, and the fingers then reach the
        block before the peg is inserted.
        """
        tip_m, axis = self._tip(view), self._axis(view)
        down = axis.new_tensor([0.0, 0.0, -1.0]).expand_as(axis)
        lean = cross(axis, down)
        aside_m = tip_m[:, :2].norm(dim=-1)
        ready = (aside_m < 0.004) & (lean.norm(dim=-1) < 0.06)
        deep = tip_m[:, 2] < -0.002
        above_m = torch.where(ready, -0.01, torch.where(aside_m < 0.01, 0.004, 0.02))
        above_m = torch.where(deep, -0.06, above_m)
        goal_m = view.tool.m - tip_m + torch.nn.functional.pad(above_m[:, None], (2, 0))
        return torch.cat([toward(goal_m, view, reach), turning(lean, reach)], -1)

    def _tip(self, view: View) -> Float[Tensor, "n 3"]:
        """Tip of the peg relative to the hole's opening [m, world axes]."""
        return view.object_pose("peg").m + TIP_M * self._axis(view) - view.goal

    def _axis(self, view: View) -> Float[Tensor, "n 3"]:
        """Direction of the peg [unit vector, world]: its negative z axis."""
        return -axis_z(view.object_pose("peg").quat)
