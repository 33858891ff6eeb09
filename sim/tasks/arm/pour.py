"""Pour: empty a cup of beads, held in the hand, into a bowl on the table.

Randomisation: position of the bowl in a field of 8 by 24 cm; start pose of the arm. Observation `state`
(24,), independent of the number of beads: tool relative to the bowl (3); direction of the tool (3); share of
beads in the cup (1) and in the bowl (1); mean position of the beads relative to the bowl (3) and mean
velocity (3); joint positions (7); lip of the cup relative to the bowl (3); m, m/s and rad in the world.
Success: 90 % of the beads in the bowl for 5 steps in a row. Dense reward: weighted terms of nearness of the
lip, beads not spilt, beads poured.
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
from sim.bodies.rotation import axis_z, conjugate, from_rotvec, multiply, rotate, to_rotvec
from sim.engines.protocol import Start
from sim.tasks.scripted import between, toward, turning

BEAD_M, MOST = 0.006, 27  # radius of a bead; largest number of them
_CUP_M = 0.06  # the cup's axis, from the tool along its x; x is horizontal while the tool points down
_FLOOR_M, _RIM_M = 0.025, -0.03  # floor and rim of the cup along the tool's z
_HALF_M, _FLARE_RAD = 0.0195, 0.26  # half-width at the floor; angle at which the walls lean out
# A bead is in the bowl within this radius, below this height, and in the cone of the wall: its radius at the
# table, and the angle by which it leans out.
_BOWL_M, _BOWL_HIGH_M, _BOWL_FOOT_M, _BOWL_LEAN_RAD = 0.075, 0.06, 0.047, 0.6
_ABOVE_M, _TILTED_RAD = (0.17, 0.1), 1.75  # height of the lip, upright and tilted; final tilt


@dataclass(frozen=True)
class PourTask:
    """`beads`: 1 to 27 of them in the cup. Raises ConfigError for other numbers."""

    beads: int = 20
    name: str = "pour"
    scene: str = "pour.xml"
    numbers: int = 2
    max_steps: int = 150
    hold_steps: int = 5
    share: float = 0.9
    reach: Reach = field(
        default_factory=lambda: Reach("full", 0.02, 0.1, 0.04, 0.2, (0.25, -0.3, 0.1), (0.6, 0.3, 0.5))
    )
    grips: bool = False
    ready_m: tuple[tuple[float, float, float], tuple[float, float, float]] = (
        (0.34, -0.12, 0.24),
        (0.42, 0.12, 0.32),
    )
    field_m: tuple[tuple[float, float], tuple[float, float]] = ((0.42, -0.12), (0.5, 0.12))
    obs_parts: tuple[tuple[str, int, str], ...] = (
        ("tool from bowl", 3, "m"),
        ("tool axis", 3, "1"),
        ("share in cup", 1, "1"),
        ("share in bowl", 1, "1"),
        ("beads from bowl", 3, "m"),
        ("beads' velocity", 3, "m/s"),
        ("joints", 7, "rad"),
        ("lip from bowl", 3, "m"),
    )
    weights: Mapping[str, float] = field(default_factory=lambda: {"near": 0.2, "kept": 0.2, "poured": 0.6})

    def __post_init__(self) -> None:
        if not 1 <= self.beads <= MOST:
            raise ConfigError(f"beads is {self.beads}; expected 1 to {MOST}.")

    def edit(self, spec: Any) -> None:
        """Add the cup (a floor and four leaning walls, fixed to the hand by a handle) and the beads."""
        tool = spec.site("tool")
        if tool is None:
            raise ConfigError(
                "arm/pour holds its cup at the site 'tool', which this robot's MJCF does not have."
            )
        turn, middle_m = torch.tensor(tool.quat.tolist()), torch.tensor(tool.pos.tolist())

        def box(place: list[float], size: list[float], tilt: list[float], touches: bool = True) -> None:
            quat = multiply(turn, from_rotvec(torch.tensor(tilt)))
            tool.parent.add_geom(
                type=mujoco.mjtGeom.mjGEOM_BOX,
                pos=(middle_m + rotate(turn, torch.tensor(place))).tolist(),
                quat=quat.tolist(),
                size=size,
                mass=0.005,
                contype=8 if touches else 0,
                conaffinity=0,
                condim=1,
                rgba=[0.9, 0.75, 0.3, 1.0],
            )

        high = (_FLOOR_M - _RIM_M) / 2.0 / math.cos(_FLARE_RAD)
        out = _HALF_M + high * math.sin(_FLARE_RAD) + 0.004
        box([_CUP_M, 0.0, _FLOOR_M + 0.004], [_HALF_M + 0.004, _HALF_M + 0.004, 0.004], [0.0, 0.0, 0.0])
        wide, level = _HALF_M + 2.0 * high * math.sin(_FLARE_RAD) + 0.004, 0.5 * (_FLOOR_M + _RIM_M)
        for sign in (-1.0, 1.0):
            box([_CUP_M + sign * out, 0.0, level], [0.004, wide, high], [0.0, -sign * _FLARE_RAD, 0.0])
            box([_CUP_M, sign * out, level], [wide, 0.004, high], [sign * _FLARE_RAD, 0.0, 0.0])
        box(
            [0.5 * (_CUP_M - out), 0.0, 0.0],
            [0.5 * (_CUP_M - out), 0.008, 0.006],
            [0.0, 0.0, 0.0],
            touches=False,
        )
        for i in range(self.beads):
            body = spec.worldbody.add_body(name=f"bead{i}", pos=[0.4 + 0.02 * i, 0.5, BEAD_M])
            body.add_freejoint(name=f"bead{i}")
            body.add_geom(
                type=mujoco.mjtGeom.mjGEOM_SPHERE,
                size=[BEAD_M, 0.0, 0.0],
                mass=0.003,
                contype=16,
                conaffinity=30,
                condim=1,
                rgba=[0.85, 0.25, 0.2, 1.0],
            )

    def start(
        self, uniform: Float[Tensor, "k 2"], q_rad: Float[Tensor, "k j"], tool: Pose, wiring: Wiring
    ) -> tuple[Start, Float[Tensor, "k 3"]]:
        start = wiring.start(q_rad, 0.008)
        (low_x, low_y), (high_x, high_y) = self.field_m
        place = [
            between(uniform[:, 0], low_x, high_x),
            between(uniform[:, 1], low_y, high_y),
            0.0 * uniform[:, 0],
        ]
        bowl_m = torch.stack(place, -1).to(q_rad)
        start.fixture_m[:, wiring.scene.fixture("bowl"), :2] = bowl_m[:, :2]
        for i in range(self.beads):
            layer, row, column = i // 9, i % 9 // 3, i % 3
            at_m = [(row - 1) * 0.0126 + _CUP_M, (column - 1) * 0.0126, _FLOOR_M - BEAD_M - 0.0122 * layer]
            bead = wiring.loose[f"bead{i}"][0]
            start.qpos[:, bead.start : bead.start + 3] = tool.m + rotate(tool.quat, tool.m.new_tensor(at_m))
        return start, bowl_m

    def observe(self, view: View) -> Float[Tensor, "n 24"]:
        beads, velocity = self._beads(view)
        parts = [
            view.tool.m - view.goal, axis_z(view.tool.quat), self._in_cup(view, beads)[:, None],
            self._in_bowl(view, beads)[:, None], beads.mean(1) - view.goal, velocity.mean(1), view.q_rad,
            self._lip(view) - view.goal,
        ]  # fmt: skip
        return torch.cat(parts, -1)

    def solved(self, view: View) -> Bool[Tensor, " n"]:
        solved: Tensor = self._in_bowl(view, self._beads(view)[0]) >= self.share - 1e-6
        return solved

    def terms(self, view: View) -> dict[str, Float[Tensor, " n"]]:
        beads, _ = self._beads(view)
        cup, bowl = self._in_cup(view, beads), self._in_bowl(view, beads)
        aside_m = (self._lip(view) - view.goal)[:, :2].norm(dim=-1)
        return {"near": 1.0 - torch.tanh(5.0 * aside_m), "kept": (cup + bowl).clamp_max(1.0), "poured": bowl}

    def expert(self, view: View, reach: Reach) -> Float[Tensor, "n 6"]:
        """Move the lip low over the bowl, then tilt slowly about the lip until the cup is empty."""
        lip_m, tilt = self._lip(view), self._tilt(view)
        # The height keeps the hand clear of the bowl.
        height_m = _ABOVE_M[0] + (_ABOVE_M[1] - _ABOVE_M[0]) * tilt.clamp(0.0, 1.0)
        left_m = view.goal + torch.nn.functional.pad(height_m[:, None], (2, 0)) - lip_m
        ready = left_m.norm(dim=-1) < 0.025
        begun = tilt > 0.3
        wanted = torch.where(ready | begun, (tilt + 0.2).clamp_max(_TILTED_RAD), 0.0)
        zero = torch.zeros_like(wanted)
        down = view.tool.quat.new_tensor([0.0, 1.0, 0.0, 0.0]).expand_as(view.tool.quat)
        goal = multiply(from_rotvec(torch.stack([zero, wanted, zero], -1)), down)
        turn = turning(to_rotvec(multiply(goal, conjugate(view.tool.quat))), reach)
        return torch.cat([toward(view.tool.m + left_m, view, reach), turn.clamp(-0.8, 0.8)], -1)

    def _beads(self, view: View) -> tuple[Float[Tensor, "n b 3"], Float[Tensor, "n b 3"]]:
        """Returns (positions [m], velocities [m/s]) of the beads in the world."""
        names = [f"bead{i}" for i in range(self.beads)]
        speeds = [view.speed_m_s(name) for name in names]
        return torch.stack([view.object_pose(name).m for name in names], 1), torch.stack(speeds, 1)

    def _tilt(self, view: View) -> Float[Tensor, " n"]:
        """Angle [rad] of the tool, 0 when it points down, pi/2 when it points back to the arm's base."""
        axis = axis_z(view.tool.quat)
        return torch.atan2(-axis[:, 0], -axis[:, 2])

    def _lip(self, view: View) -> Float[Tensor, "n 3"]:
        """Middle of the edge over which beads leave the cup [m, world]."""
        out_m = _CUP_M + _HALF_M + (_FLOOR_M - _RIM_M) * math.tan(_FLARE_RAD)
        return view.tool.m + rotate(
            view.tool.quat, view.tool.m.new_tensor([out_m, 0.0, _RIM_M]).expand_as(view.tool.m)
        )

    def _in_cup(self, view: View, beads_m: Float[Tensor, "n b 3"]) -> Float[Tensor, " n"]:
        """Share of beads between floor and rim and inside the walls of the cup."""
        back = conjugate(view.tool.quat)[:, None].expand(-1, self.beads, 4)
        seen = rotate(back, beads_m - view.tool.m[:, None]) - beads_m.new_tensor([_CUP_M, 0.0, 0.0])
        half_m = _HALF_M + (_FLOOR_M - seen[..., 2]) * math.tan(_FLARE_RAD)
        inside = (seen[..., :2].abs().amax(-1) < half_m) & (seen[..., 2] < _FLOOR_M) & (seen[..., 2] > _RIM_M)
        return inside.to(beads_m).mean(1)

    def _in_bowl(self, view: View, beads_m: Float[Tensor, "n b 3"]) -> Float[Tensor, " n"]:
        """Share of beads inside the bowl's wall and below its rim; beads under the wall are outside."""
        away_m = beads_m - view.goal[:, None]
        aside_m, height_m = away_m[..., :2].norm(dim=-1), away_m[..., 2]
        within_m = (_BOWL_FOOT_M + math.tan(_BOWL_LEAN_RAD) * height_m).clamp_max(_BOWL_M)
        inside: Tensor = (aside_m < within_m) & (height_m < _BOWL_HIGH_M)
        return inside.to(beads_m).mean(1)
