"""Push-T: push a T over the table, with a stick in the hand, onto its target.

Randomisation: position and heading of the T; start pose of the arm. Observation `state` (17,), horizontal
coordinates in the world: the stick (2); the T relative to the stick (2) and to its target (2), its angle from
the target as cos, sin (2); joint positions (7); velocity of the T (2); m, m/s and rad. Success: the T covers
`coverage` of the target's area for 3 steps in a row. Dense reward: weighted terms of nearness of the stick,
distance and angle to the target, and covered area.
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
from sim.bodies.rotation import about_z, rotate, yaw_of
from sim.engines.protocol import Start
from sim.tasks.arm.pushing import STICK_M, faces, push
from sim.tasks.arm.tee import share_covered
from sim.tasks.scripted import between

TARGET_M, TARGET_RAD = (0.5, 0.0), math.pi / 4
_HEIGHT_M, _TIP_M, _ROOM_M = 0.07, 0.008, 0.02  # the tool; the stick's end; room to get behind a face


@dataclass(frozen=True)
class PushTTask:
    """The T lies anywhere in a field of 16 by 24 cm, at any angle. `coverage`: share of the target."""

    coverage: float = 0.9
    name: str = "push_t"
    scene: str = "push_t.xml"
    numbers: int = 3
    max_steps: int = 400
    hold_steps: int = 3
    reach: Reach = field(
        default_factory=lambda: Reach(
            plane=True, step_m=0.015, low_m=(0.28, -0.3, 0.06), high_m=(0.74, 0.3, 0.08)
        )
    )
    grips: bool = False
    ready_m: tuple[tuple[float, float, float], tuple[float, float, float]] = (
        (0.3, -0.15, _HEIGHT_M), (0.32, 0.15, _HEIGHT_M),
    )  # fmt: skip
    field_m: tuple[tuple[float, float], tuple[float, float]] = ((0.43, -0.12), (0.59, 0.12))
    obs_parts: tuple[tuple[str, int, str], ...] = (
        ("stick", 2, "m"), ("T from stick", 2, "m"), ("T from target", 2, "m"), ("turn from target", 2, "1"),
        ("joints", 7, "rad"), ("T velocity", 2, "m/s"),
    )  # fmt: skip
    weights: Mapping[str, float] = field(default_factory=lambda: {"near": 0.1, "placed": 0.4, "covered": 0.5})

    def __post_init__(self) -> None:
        if not 0.0 < self.coverage <= 0.97:
            raise ConfigError(f"coverage is {self.coverage:g}; expected more than 0 and at most 0.97.")

    def edit(self, spec: Any) -> None:
        """Add a low-friction stick, fixed to the hand, from the tool to just above the table."""
        tool = spec.site("tool")
        if tool is None:
            raise ConfigError(
                "arm/push_t holds its stick at the site 'tool', which this robot's MJCF does not have."
            )
        turn, middle_m = torch.tensor(tool.quat.tolist()), torch.tensor(tool.pos.tolist())
        ends = (torch.tensor([0.0, 0.0, along_m]) for along_m in (-0.015, _HEIGHT_M - _TIP_M - STICK_M))
        tool.parent.add_geom(
            name="stick",
            type=mujoco.mjtGeom.mjGEOM_CAPSULE,
            size=[STICK_M, 0.0, 0.0],
            mass=0.02,
            fromto=[number for end_m in ends for number in (middle_m + rotate(turn, end_m)).tolist()],
            contype=4,
            conaffinity=1,
            condim=1,
            priority=1,
            friction=[0.1, 0.0, 0.0],
            rgba=[0.2, 0.3, 0.8, 1.0],
        )

    def start(
        self, uniform: Float[Tensor, "k 3"], q_rad: Float[Tensor, "k j"], tool: Pose, wiring: Wiring
    ) -> tuple[Start, Float[Tensor, "k 0"]]:
        start = wiring.start(q_rad, STICK_M)
        (low_x, low_y), (high_x, high_y) = self.field_m
        tee = wiring.loose["tee"][0]
        place = [between(uniform[:, 0], low_x, high_x), between(uniform[:, 1], low_y, high_y)]
        start.qpos[:, tee.start : tee.start + 2] = torch.stack(place, -1).to(q_rad)
        start.qpos[:, tee.start + 3 : tee.stop] = about_z(between(uniform[:, 2], -math.pi, math.pi)).to(q_rad)
        return start, q_rad[:, :0]

    def observe(self, view: View) -> Float[Tensor, "n 17"]:
        stick, tee, (away, turn) = (
            view.tool.m[:, :2],
            view.object_pose("tee").m[:, :2],
            self._from_target(view),
        )
        parts = [stick, tee - stick, away, turn.cos()[:, None], turn.sin()[:, None], view.q_rad]
        return torch.cat([*parts, view.speed_m_s("tee")[:, :2]], -1)

    def solved(self, view: View) -> Bool[Tensor, " n"]:
        solved: Tensor = self._covered(view) >= self.coverage
        return solved

    def terms(self, view: View) -> dict[str, Float[Tensor, " n"]]:
        away, turn = self._from_target(view)
        off_m = away.norm(dim=-1) + 0.04 * turn.abs()
        return {
            "near": 1.0 - torch.tanh(5.0 * (view.object_pose("tee").m - view.tool.m)[:, :2].norm(dim=-1)),
            "placed": 1.0 - torch.tanh(5.0 * off_m),
            "covered": self._covered(view),
        }

    def expert(self, view: View, reach: Reach) -> Float[Tensor, "n 2"]:
        """Push at the face that reduces the error most; go around the T when another face becomes better."""
        tee, (away, turn) = view.object_pose("tee"), self._from_target(view)
        heading = yaw_of(tee.quat)
        stick = _turned(view.tool.m[:, :2] - tee.m[:, :2], -heading)
        error = torch.cat([_turned(-away, -heading), -turn[:, None]], -1)
        goal_m, pushing = push(stick, error, self._open(tee.m[:, :2], heading, reach))
        move = _turned(goal_m - stick, heading) / reach.step_m
        fastest = torch.where(pushing, 0.4, 1.0)[:, None]
        gain = torch.where(pushing, 0.2, 0.3)[:, None]
        size = move.norm(dim=-1, keepdim=True).clamp_min(1e-9)
        action: Tensor = move / size * torch.minimum(gain * size, fastest)
        return action

    def _open(
        self, tee_m: Float[Tensor, "n 2"], heading: Float[Tensor, " n"], reach: Reach
    ) -> Bool[Tensor, "n c"]:
        """Mask of the faces behind which the stick can get."""
        point, normal = faces(tee_m)
        behind = (point - _ROOM_M * normal).expand(len(tee_m), -1, 2)
        place = tee_m[:, None] + _turned(behind, heading[:, None])
        low, high = place.new_tensor(reach.low_m[:2]), place.new_tensor(reach.high_m[:2])
        open_: Tensor = ((place > low) & (place < high)).all(-1)
        return open_

    def _covered(self, view: View) -> Float[Tensor, " n"]:
        """Share of the target's area that the T covers."""
        away, turn = self._from_target(view)
        target = torch.full_like(turn, TARGET_RAD)
        return share_covered(_turned(away, -target), turn)

    def _from_target(self, view: View) -> tuple[Float[Tensor, "n 2"], Float[Tensor, " n"]]:
        """The T relative to its target: (offset [m, world axes], angle [rad] in (-pi, pi))."""
        tee = view.object_pose("tee")
        turn = torch.remainder(yaw_of(tee.quat) - TARGET_RAD + math.pi, 2 * math.pi) - math.pi
        return tee.m[:, :2] - tee.m.new_tensor(TARGET_M), turn


def _turned(point: Float[Tensor, "*n 2"], angle: Float[Tensor, " *n"]) -> Float[Tensor, "*n 2"]:
    """Points turned counter-clockwise by angles [rad]."""
    x, y = point[..., 0], point[..., 1]
    cos, sin = angle.cos(), angle.sin()
    return torch.stack([cos * x - sin * y, sin * x + cos * y], -1)
