"""Unscrew: turn a cap off its post, regrasping it at the end of the wrist's range, and lift it.

Randomisation: position and heading of the post; start pose of the arm. Observation `state` (21,): tool
position (3) and heading as cos, sin (2); opening of the fingers (1); cap relative to the tool (3), its
heading a relative to the tool's as cos 4a, sin 4a (2); angle left to turn (1), turning speed (1) and height
of the cap (1); joint positions (7); m, rad and rad/s in the world. Success: the cap is 5 cm above the end of
its thread for 5 steps in a row. Dense reward: weighted terms of nearness, contact of both fingers, angle
turned, and height.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import mujoco
import torch
from torch import Tensor

from robo_rl.core.errors import ConfigError
from robo_rl.core.shapes import Bool, Float
from sim.arms.control import Reach
from sim.arms.view import View, Wiring
from sim.bodies.pose import Pose
from sim.bodies.rotation import about_z, from_rotvec, multiply, yaw_of
from sim.engines.protocol import Start
from sim.tasks.arm.grasp import heading
from sim.tasks.scripted import between, toward, turning

PITCH_M = 0.01  # rise per turn
_PIN_M, _RADIUS_M, _FOOT_M = 0.003, 0.021, 0.03  # radius of the pin; of its track; its height in a closed cap
_PLAY_M = 0.0003  # clearance above and below the pin
_HALF_M, _WIDE_M = 0.0015, 0.004  # half-height and half-width of a rail
_SECTOR_RAD, _BEYOND_RAD = math.pi / 9, 1.2  # angle of one piece of rail; free turning beyond the thread
_GRASP_M = (0.0, 0.0, 0.075)  # in the cap's frame
_STROKE_RAD = 1.65  # range of the wrist to either side


@dataclass(frozen=True)
class UnscrewTask:
    """`turns` until the cap is free, 0.1 to 1.25. The post stands in a field of 14 by 24 cm."""

    turns: float = 0.75
    name: str = "unscrew"
    scene: str = "unscrew.xml"
    numbers: int = 3
    max_steps: int = 300
    hold_steps: int = 5
    reach: Reach = field(default_factory=lambda: Reach(turns="yaw", step_rad=0.12, low_m=(0.3, -0.3, 0.06)))
    grips: bool = True
    ready_m: tuple[tuple[float, float, float], tuple[float, float, float]] = (
        (0.42, -0.1, 0.18),
        (0.58, 0.1, 0.28),
    )
    field_m: tuple[tuple[float, float], tuple[float, float]] = ((0.43, -0.12), (0.57, 0.12))
    lift_m: float = 0.05
    obs_parts: tuple[tuple[str, int, str], ...] = (
        ("tool", 3, "m"), ("heading", 2, "1"), ("opening", 1, "m"), ("cap from tool", 3, "m"),
        ("cap heading x4", 2, "1"), ("turn left", 1, "rad"), ("turn speed", 1, "rad/s"), ("rise", 1, "m"),
        ("joints", 7, "rad"),
    )  # fmt: skip
    weights: Mapping[str, float] = field(
        default_factory=lambda: {"near": 0.2, "pinched": 0.1, "turned": 0.4, "lifted": 0.3}
    )

    def __post_init__(self) -> None:
        if not 0.1 <= self.turns <= 1.25:
            raise ConfigError(
                f"turns is {self.turns:g}; expected 0.1 to 1.25, which fit into the time of an episode."
            )

    @property
    def thread_rad(self) -> float:
        """Angle of the cap at the end of its thread."""
        return 2.0 * math.pi * self.turns

    @property
    def rise_m(self) -> float:
        """Height of the cap at the end of its thread."""
        return PITCH_M * self.turns

    def edit(self, spec: Any) -> None:
        """Add rails of straight pieces above and below the pin.

        The lower rail continues level beyond the thread, so that a released cap does not fall back.
        """
        end_rad = self.thread_rad + _BEYOND_RAD
        spec.joint("turn").range = [-0.25, end_rad - 0.1]
        slope = math.atan(PITCH_M / (2.0 * math.pi * _RADIUS_M))
        aside_m = _PIN_M + _PLAY_M + _HALF_M
        for side, last_rad in ((1.0, self.thread_rad), (-1.0, end_rad)):
            count = math.ceil((last_rad + 0.3) / _SECTOR_RAD)
            for i in range(count):
                middle_rad = last_rad - (i + 0.5) * _SECTOR_RAD
                level = middle_rad > self.thread_rad
                height_m = (
                    _FOOT_M + PITCH_M * min(middle_rad, self.thread_rad) / (2.0 * math.pi) + side * aside_m
                )
                place = [_RADIUS_M * math.cos(middle_rad), _RADIUS_M * math.sin(middle_rad), height_m]
                tilt = from_rotvec(torch.tensor([[0.0 if level else slope, 0.0, 0.0]]))
                spec.body("post").add_geom(
                    type=mujoco.mjtGeom.mjGEOM_BOX,
                    pos=place,
                    contype=8,
                    conaffinity=0,
                    condim=1,
                    quat=multiply(about_z(torch.tensor([middle_rad])), tilt)[0].tolist(),
                    size=[_WIDE_M, 1.1 * _RADIUS_M * math.tan(0.5 * _SECTOR_RAD), _HALF_M],
                    rgba=[0.75, 0.75, 0.78, 1],
                )

    def start(
        self, uniform: Float[Tensor, "k 3"], q_rad: Float[Tensor, "k j"], tool: Pose, wiring: Wiring
    ) -> tuple[Start, Float[Tensor, "k 0"]]:
        start = wiring.start(q_rad, wiring.robot.open_m)
        (low_x, low_y), (high_x, high_y) = self.field_m
        place = [between(uniform[:, 0], low_x, high_x), between(uniform[:, 1], low_y, high_y)]
        for fixture in (wiring.scene.fixture(name) for name in ("post", "axis")):
            start.fixture_m[:, fixture, :2] = torch.stack(place, -1).to(q_rad)
            start.fixture_quat[:, fixture] = about_z(between(uniform[:, 2], -math.pi, math.pi)).to(q_rad)
        return start, q_rad[:, :0]

    def observe(self, view: View) -> Float[Tensor, "n 21"]:
        turn, speed = view.joint("turn")
        apart = yaw_of(view.body("cap").quat) - yaw_of(view.tool.quat)
        parts = [
            view.tool.m,
            heading(view),
            view.opening_m[:, None],
            self._grasp(view) - view.tool.m,
            (4 * apart).cos()[:, None],
            (4 * apart).sin()[:, None],
            (self.thread_rad - turn)[:, None],
            speed[:, None],
            view.joint("rise")[0][:, None],
            view.q_rad,
        ]
        return torch.cat(parts, -1)

    def solved(self, view: View) -> Bool[Tensor, " n"]:
        solved: Tensor = view.joint("rise")[0] >= self.rise_m + self.lift_m
        return solved

    def terms(self, view: View) -> dict[str, Float[Tensor, " n"]]:
        rise_m, turn = view.joint("rise")[0], view.joint("turn")[0]
        return {
            "near": 1.0 - torch.tanh(5.0 * (self._grasp(view) - view.tool.m).norm(dim=-1)),
            "pinched": (view.finger_touch_n > 0.1).all(1).to(turn),
            "turned": (turn / self.thread_rad).clamp(0.0, 1.0),
            "lifted": ((rise_m - self.rise_m) / self.lift_m).clamp(0.0, 1.0),
        }

    def expert(self, view: View, reach: Reach) -> Float[Tensor, "n 5"]:
        """Grip where the wrist has most range left, turn to its end, release and go back; lift a free cap."""
        cap, yaw = yaw_of(view.body("cap").quat), yaw_of(view.tool.quat)
        quarter = math.pi / 2
        # The first heading from the start of the wrist's range at which the fingers lie flat on the cap.
        grip_yaw = torch.remainder(cap + _STROKE_RAD, quarter) - _STROKE_RAD
        left = grip_yaw - yaw
        offset_m = self._grasp(view) - view.tool.m
        aside_m = offset_m[:, :2].norm(dim=-1)
        around = (aside_m < 0.018) & (offset_m[:, 2].abs() < 0.014)
        closed = view.opening_m < 0.026
        wide = view.opening_m > 0.032
        held = closed & around
        free = view.joint("turn")[0] > self.thread_rad + 0.2
        ended = held & ~free & (yaw > _STROKE_RAD - 0.1)
        there = around & (left.abs() < 0.12)
        # Down only with the fingers aligned with the cap; around it they turn only when wide open.
        above_m = torch.where(around | ((aside_m < 0.015) & (left.abs() < 0.2)), 0.0, 0.08)
        goal_m = self._grasp(view) + torch.nn.functional.pad(above_m[:, None], (2, 0))
        up_m = view.tool.m + view.tool.m.new_tensor([0.0, 0.0, 0.1])
        move = toward(torch.where((held & free)[:, None], up_m, goal_m), view, reach)
        back = torch.where(~around | wide, turning(left, reach), 0.0)
        turn = torch.where(held & ~ended, torch.where(free, 0.0, 0.8), back)
        grip = torch.where((held | there) & ~ended, -1.0, 1.0).to(move)
        return torch.cat([move, turn[:, None], grip[:, None]], -1)

    def _grasp(self, view: View) -> Float[Tensor, "n 3"]:
        """Point of the cap's axis where the fingers grip it [m, world]."""
        return view.body("cap").m + view.tool.m.new_tensor(_GRASP_M)
