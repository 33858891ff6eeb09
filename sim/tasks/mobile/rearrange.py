"""Rearrange: drive to a table, take the cube, drive to another table, and put the cube on its target there.

Randomisation: poses of both tables, of the cube and its target on them, and of the base. Observation `state`
(39,) in the base's frame: tool (3) and its heading as cos, sin (2); opening of the fingers (1); cube (3), its
heading a relative to the tool's as cos 4a, sin 4a (2); target (3); cube relative to the tool (3), target
relative to the cube (3); middles (2 + 2) and headings (2 + 2) of both tables, first the one with the cube;
contact of each fingertip (2); forward speed (1), turning speed (1); joint positions (7); m, rad, m/s and
rad/s.

Success: the cube stands on the table within 5 cm of its target and no finger touches it, for 5 steps in a
row. The episode fails when the base comes nearer than 1 cm to anything, or the cube falls from a table. Dense
reward: weighted terms of nearness, contact of both fingers, height, distance of the cube to its target, and
success.
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
from sim.bodies.rotation import about_z, yaw_of
from sim.engines.protocol import Start
from sim.mobile.base import BaseRobot
from sim.mobile.manipulator import ManipulatorView, ManipulatorWiring, mount_arm
from sim.mobile.plan import Planner, pursue
from sim.tasks.arm.grasp import around, heading, quarter_turn_left
from sim.tasks.scripted import between, toward, turning

TOP_M, HALF_M, DEPTH_M = (
    0.4,
    0.022,
    0.25,
)  # height of a table; half an edge of the cube; half depth of a table
DOCK_M = 0.35  # distance of the base's middle from a table's edge when docked
BEFORE_M = 0.45  # additional distance at which it turns to face the table
CARRY_M = (0.46, 0.0, 0.66)  # tool position in the base's frame while driving
_SLACK_M, _ASIDE_M = 0.008, 0.05  # tolerances of a placed cube: height, horizontal distance


@dataclass(frozen=True)
class RearrangeTask:
    """A room of 5 by 5 m with tables at opposite walls, anywhere along 1.8 m, turned by up to 0.3 rad.

    Cube and target are 7 to 15 cm from the tables' front edges and up to 30 cm off their middles; the base
    starts in the middle 1.2 by 1.6 m of the room.
    """

    name: str = "rearrange"
    scene: str = "rearrange.xml"
    numbers: int = 13
    max_steps: int = 700
    hold_steps: int = 5
    touch_m: float = 0.01
    reach: Reach = field(
        default_factory=lambda: Reach(
            "yaw", 0.025, 0.15, 0.04, 0.2, (0.34, -0.35, TOP_M + 0.006), (0.75, 0.35, 0.8)
        )
    )
    ready_m: tuple[tuple[float, float, float], tuple[float, float, float]] = (
        (0.42, -0.1, 0.6),
        (0.52, 0.1, 0.7),
    )
    cloud_m: tuple[tuple[float, float, float], tuple[float, float, float]] = (
        (-2.5, -2.5, 0.02),
        (2.5, 2.5, 1.5),
    )
    obs_parts: tuple[tuple[str, int, str], ...] = (
        ("tool", 3, "m"),
        ("heading", 2, "1"),
        ("opening", 1, "m"),
        ("cube", 3, "m"),
        ("cube heading x4", 2, "1"),
        ("goal from base", 3, "m"),
        ("cube from tool", 3, "m"),
        ("goal from cube", 3, "m"),
        ("tables", 4, "m"),
        ("table headings", 4, "1"),
        ("touch", 2, "1"),
        ("forward", 1, "m/s"),
        ("turn", 1, "rad/s"),
        ("joints", 7, "rad"),
    )
    weights: Mapping[str, float] = field(
        default_factory=lambda: {"near": 0.2, "pinched": 0.1, "lifted": 0.1, "toward": 0.3, "placed": 0.3}
    )
    planner: Planner = field(
        default_factory=lambda: Planner(2.5, 0.07, 0.28 + 0.04), repr=False, compare=False
    )

    def edit(self, spec: Any) -> None:
        """Mount the arm on its base."""
        mount_arm(spec)

    def start(
        self, uniform: Float[Tensor, "k 13"], start: Start, wiring: ManipulatorWiring
    ) -> tuple[Float[Tensor, "k 3"], Float[Tensor, "k 3"]]:
        u = uniform.to(start.qpos)
        side = torch.where(u[:, 0] < 0.5, -1.0, 1.0).to(u)
        spots = []
        for i, (name, sign) in enumerate((("from", side), ("to", -side))):
            fixture, own = wiring.scene.fixture(name), u[:, 1 + 4 * i : 5 + 4 * i]
            # The front of a table faces the middle of the room.
            yaw = between(own[:, 1], -0.3, 0.3) + torch.where(sign > 0.0, math.pi, 0.0)
            middle = torch.stack([1.9 * sign, between(own[:, 0], -0.9, 0.9)], -1)
            start.fixture_m[:, fixture, :2], start.fixture_quat[:, fixture] = middle, about_z(yaw)
            ahead, aside = DEPTH_M - between(own[:, 2], 0.07, 0.15), between(own[:, 3], -0.3, 0.3)
            c, s = yaw.cos(), yaw.sin()
            spots.append(middle + torch.stack([c * ahead - s * aside, s * ahead + c * aside], -1))
        cube = wiring.loose["cube"][0]
        start.qpos[:, cube.start : cube.start + 2] = spots[0]
        start.qpos[:, cube.start + 2] = TOP_M + HALF_M
        start.qpos[:, cube.start + 3 : cube.stop] = about_z(between(u[:, 9], -math.pi, math.pi))
        start.fixture_m[:, wiring.scene.fixture("target"), :2] = spots[1]
        goal = torch.cat([spots[1], torch.full_like(side, TOP_M + HALF_M)[:, None]], -1)
        pose = [
            between(u[:, 10], -0.6, 0.6),
            between(u[:, 11], -0.8, 0.8),
            between(u[:, 12], -math.pi, math.pi),
        ]
        return torch.stack(pose, -1), goal

    def observe(self, view: ManipulatorView) -> Float[Tensor, "n 39"]:
        local = view.local
        cube, left = local.object_pose("cube").m, quarter_turn_left(local, "cube")
        goal = self._goal(view)
        tables = [view.body(name) for name in ("from", "to")]
        parts = [
            local.tool.m, heading(local), view.opening_m[:, None], cube, (4 * left).cos()[:, None],
            (4 * left).sin()[:, None], goal, cube - local.tool.m, goal - cube,
            *(view.from_base(table.m[:, :2]) for table in tables),
            *(view.heading_from_base(yaw_of(table.quat)) for table in tables),
            (view.physics.touch_n > 0.1).to(cube), view.twist, view.q_rad,
        ]  # fmt: skip
        return torch.cat(parts, -1)

    def solved(self, view: ManipulatorView) -> Bool[Tensor, " n"]:
        return self._stands(view) & (view.physics.touch_n < 0.05).all(1)

    def failed(self, view: ManipulatorView) -> Bool[Tensor, " n"]:
        return (view.clearance_m < self.touch_m) | (view.object_pose("cube").m[:, 2] < TOP_M - 0.1)

    def terms(self, view: ManipulatorView) -> dict[str, Float[Tensor, " n"]]:
        cube = view.object_pose("cube").m
        pinched = (view.physics.touch_n > 0.1).all(1).to(cube)
        stands = self._stands(view).to(cube)
        return {
            "near": 1.0 - torch.tanh((view.local.object_pose("cube").m - view.local.tool.m).norm(dim=-1)),
            "pinched": pinched.maximum(stands),
            "lifted": ((cube[:, 2] - TOP_M - HALF_M) / 0.1).clamp(0.0, 1.0).maximum(stands),
            "toward": 1.0 - torch.tanh(0.5 * (cube - view.goal).norm(dim=-1)),
            "placed": stands,
        }

    def expert(
        self, view: ManipulatorView, base: BaseRobot
    ) -> tuple[Float[Tensor, "n 2"], Float[Tensor, "n 5"]]:
        """Dock at the cube, grasp and lift it; dock at its target, put it down, release it, and rise.

        Returns actions of (base, arm with gripper).
        """
        cube = view.object_pose("cube").m
        held, stands = (view.physics.touch_n > 0.5).all(1), self._stands(view)
        bring = held | stands
        dock, docked = self._dock(view, base, bring, cube)
        low = cube[:, 2] < TOP_M + HALF_M + 0.1
        still = docked | (held & low)
        twist = torch.where(still[:, None], 0.0, dock)

        local = view.local
        left = quarter_turn_left(local, "cube")
        grasp_m, there = around(local, "cube", left)
        there = there & docked & ~bring
        stow_m = local.tool.m.new_tensor(CARRY_M).expand_as(grasp_m)
        rise_m = torch.cat([local.tool.m[:, :2], stow_m[:, 2:]], -1)
        goal_m = torch.where((docked & ~bring)[:, None], grasp_m, stow_m)
        goal_m = torch.where((held & low & ~docked)[:, None], rise_m, goal_m)
        goal_m = torch.where((held & docked)[:, None], local.tool.m + self._carry(view), goal_m)
        goal_m = torch.where(stands[:, None], rise_m, goal_m)
        turn = torch.where(docked & ~bring, turning(left, self.reach), 0.0)
        grip = torch.where((there | held) & ~stands, -1.0, 1.0).to(turn)
        return twist, torch.cat([toward(goal_m, local, self.reach), turn[:, None], grip[:, None]], -1)

    def _carry(self, view: ManipulatorView) -> Float[Tensor, "n 3"]:
        """Motion of the tool [m, base frame] that brings a held cube over its target and down on it."""
        offset = self._goal(view) - view.local.object_pose("cube").m
        aside_m = offset[:, :2].norm(dim=-1)
        height_m = torch.where(aside_m < 0.012, -0.004, 0.05)
        return torch.cat([offset[:, :2], (offset[:, 2] + height_m)[:, None]], -1).clamp(-0.04, 0.04)

    def _dock(
        self, view: ManipulatorView, base: BaseRobot, bring: Bool[Tensor, " n"], cube_m: Float[Tensor, "n 3"]
    ) -> tuple[Float[Tensor, "n 2"], Bool[Tensor, " n"]]:
        """Drive to where the arm reaches cube or target: in front of the table, turn to it, then straight on.

        Returns (forward and turning speed [m/s, rad/s], mask of docked bases).
        """
        spot = torch.where(bring[:, None], view.goal, cube_m)[:, :2]
        tables = [view.body(name) for name in ("from", "to")]
        gaps = [(table.m[:, :2] - spot).norm(dim=-1) for table in tables]
        first = (gaps[0] < gaps[1])[:, None]
        middle = torch.where(first, tables[0].m, tables[1].m)[:, :2]
        yaw = yaw_of(torch.where(first, tables[0].quat, tables[1].quat))
        front = torch.stack([yaw.cos(), yaw.sin()], -1)
        dock_m = DEPTH_M - ((spot - middle) * front).sum(-1) + DOCK_M  # of the base's middle, before the spot
        away = view.xy_m - spot
        far_m = (away * front).sum(-1)
        aside_m = away[:, 1] * front[:, 0] - away[:, 0] * front[:, 1]
        # Angle that is left to face the table.
        askew = torch.remainder(yaw - view.yaw_rad + 2.0 * math.pi, 2.0 * math.pi) - math.pi
        on_line = (aside_m.abs() < 0.1) & (askew.abs() < 0.5) & (far_m < dock_m + BEFORE_M + 0.15)
        docked = on_line & (far_m < dock_m + 0.05) & (askew.abs() < 0.25)
        before_m = spot + front * (dock_m + BEFORE_M)[:, None]
        left_m = (before_m - view.xy_m).norm(dim=-1)
        carrot = self.planner.ahead(view.shapes, before_m, view.xy_m, cells=6)
        drive = pursue(view.from_base(carrot), (0.9 * left_m).clamp(0.05, 0.8), base.turn_rad_s)
        face = torch.stack(
            [torch.zeros_like(askew), (2.5 * askew).clamp(-base.turn_rad_s, base.turn_rad_s)], -1
        )
        ahead = spot + front * (far_m - 0.3)[:, None]
        straight = pursue(
            view.from_base(ahead), (1.2 * (far_m - dock_m) + 0.01).clamp(0.0, 0.4), base.turn_rad_s
        )
        way = torch.where((left_m < 0.09)[:, None], face, drive)
        return torch.where(on_line[:, None], straight, way), docked

    def _goal(self, view: ManipulatorView) -> Float[Tensor, "n 3"]:
        """Target of the cube [m, base frame]."""
        return torch.cat([view.from_base(view.goal[:, :2]), view.goal[:, 2:]], -1)

    def _stands(self, view: ManipulatorView) -> Bool[Tensor, " n"]:
        """Mask of worlds where the cube stands on its target."""
        offset = view.object_pose("cube").m - view.goal
        stands: Tensor = (offset[:, 2].abs() < _SLACK_M) & (offset[:, :2].norm(dim=-1) < _ASIDE_M)
        return stands
