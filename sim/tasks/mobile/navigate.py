"""Navigate: drive to a point through obstacles that only the lidar measures, and stop there.

Randomisation: number, positions and headings of the obstacles; start pose and goal. Observation `state`
(59,): ranges of the lidar (55, every 4 degrees from -108 to 108, right to left; 10 m without a return); the
goal in the base's frame (2); forward speed (1) and turning speed (1); m, m/s and rad/s. Success: the base's
middle is within 20 cm of the goal and slower than 10 cm/s. Coming nearer than 1 cm to anything is a
collision, which ends the episode as a failure, as planners of real bases are judged. Dense reward: weighted
terms of nearness, success, and clearance.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from robo_rl.core.shapes import Bool, Float
from sim.bodies.rotation import about_z
from sim.engines.protocol import Start
from sim.mobile.base import BaseRobot
from sim.mobile.plan import Planner, pursue
from sim.mobile.view import BaseView, BaseWiring
from sim.tasks.scripted import between

CELLS, CELL_M = 4, 1.75  # cells along a side of the room; their size
SHAPES = tuple(f"box{i}" for i in range(6)) + tuple(f"post{i}" for i in range(6))
FEWEST, RAYS, STEP_DEG, FARTHEST_M = 6, 55, 4.0, 10.0
# Largest distance from the middle of a cell to the far side of its obstacle, for gaps of 75 cm.
ROOM_M = 0.5
_ASIDE_M, _PARKED_M = 0.25, 20.0  # random offset of start and goal; where unused obstacles are put


@dataclass(frozen=True)
class NavigateTask:
    """A room of 7 by 7 m with six to twelve obstacles, each in a cell of 1.75 m of its own, at any heading.

    Base and goal have cells of their own; the goal's is the farthest of four. Gaps are at least 75 cm wide.
    """

    name: str = "navigate"
    scene: str = "navigate.xml"
    numbers: int = CELLS**2 + 1 + 4 * len(SHAPES) + 5
    cloud_m: tuple[tuple[float, float, float], tuple[float, float, float]] = (
        (-3.5, -3.5, 0.02),
        (3.5, 3.5, 1.0),
    )
    max_steps: int = 500
    hold_steps: int = 1
    near_m: float = 0.2
    slow_m_s: float = 0.1
    touch_m: float = 0.01
    obs_parts: tuple[tuple[str, int, str], ...] = (
        ("lidar", RAYS, "m"), ("goal from base", 2, "m"), ("forward", 1, "m/s"), ("turn", 1, "rad/s"),
    )  # fmt: skip
    weights: Mapping[str, float] = field(default_factory=lambda: {"near": 0.6, "there": 0.2, "clear": 0.2})
    planner: Planner = field(
        default_factory=lambda: Planner(3.5, 0.07, 0.28 + 0.04), repr=False, compare=False
    )

    def edit(self, spec: Any) -> None:
        """Nothing to change: the task has no settings."""

    def start(
        self, uniform: Float[Tensor, "k u"], wiring: BaseWiring
    ) -> tuple[Float[Tensor, "k 3"], Start, Float[Tensor, "k 2"]]:
        k, cells, shapes = len(uniform), CELLS**2, len(SHAPES)
        start = wiring.as_written(k)
        order, count, rank, jitter, ends = uniform.to(start.qpos).split([cells, 1, shapes, 3 * shapes, 5], 1)
        cell = _far_apart(order.argsort(1))
        slot = rank.argsort(1)  # random order of the shapes; the first ones stand in the room
        stands = slot < FEWEST + (count * (shapes - FEWEST + 1)).long().clamp_max(shapes - FEWEST)
        place_m = _middle(cell.gather(1, slot + 2)).to(ends)
        free_m = ROOM_M - _radii(wiring)
        aside_m = (2.0 * jitter.reshape(k, shapes, 3)[..., :2] - 1.0) * free_m[:, None]
        away_m = place_m.new_tensor([[_PARKED_M + i, 0.0] for i in range(shapes)])
        fixtures = [wiring.scene.fixture(name) for name in SHAPES]
        start.fixture_m[:, fixtures, :2] = torch.where(stands[..., None], place_m + aside_m, away_m)
        start.fixture_quat[:, fixtures] = about_z(
            between(jitter.reshape(k, shapes, 3)[..., 2], -math.pi, math.pi)
        )
        here_m, there_m = (
            _middle(cell[:, i]).to(ends) + between(ends[:, 2 * i : 2 * i + 2], -_ASIDE_M, _ASIDE_M)
            for i in (0, 1)
        )
        start.fixture_m[:, wiring.scene.fixture("goal"), :2] = there_m
        yaw = between(ends[:, 4:], -math.pi, math.pi)
        return torch.cat([here_m, yaw], -1), start, there_m

    def observe(self, view: BaseView) -> Float[Tensor, "n 59"]:
        return torch.cat(
            [view.lidar_m(_bearings(view.goal), FARTHEST_M), view.from_base(view.goal), view.twist], -1
        )

    def solved(self, view: BaseView) -> Bool[Tensor, " n"]:
        return (self._left_m(view) < self.near_m) & (view.twist[:, 0].abs() < self.slow_m_s)

    def failed(self, view: BaseView) -> Bool[Tensor, " n"]:
        return view.clearance_m < self.touch_m

    def terms(self, view: BaseView) -> dict[str, Float[Tensor, " n"]]:
        left_m = self._left_m(view)
        return {
            "near": 1.0 - torch.tanh(0.3 * left_m),
            "there": (left_m < self.near_m).to(left_m),
            "clear": (view.clearance_m / 0.3).clamp(0.0, 1.0),
        }

    def expert(self, view: BaseView, base: BaseRobot) -> Float[Tensor, "n 2"]:
        """Shortest collision-free path on the true map, followed by pure pursuit; slower in narrow places."""
        carrot_m = self.planner.ahead(view.shapes, view.goal, view.xy_m, cells=7)
        left_m = self._left_m(view)
        free_m = view.clearance_m.clamp_min(0.0)
        forward = (
            (0.3 + 2.5 * free_m).minimum(0.9 * (left_m - 0.05).clamp_min(0.0)).clamp_max(base.forward_m_s)
        )
        return pursue(view.from_base(carrot_m), forward, base.turn_rad_s)

    def _left_m(self, view: BaseView) -> Float[Tensor, " n"]:
        left: Tensor = (view.goal - view.xy_m).norm(dim=-1)
        return left


def _bearings(like: Tensor) -> Float[Tensor, " r"]:
    """Directions of the lidar's rays [rad, base frame], counter-clockwise."""
    first = -0.5 * STEP_DEG * (RAYS - 1)
    return like.new_tensor([math.radians(first + STEP_DEG * i) for i in range(RAYS)])


def _middle(cell: Tensor) -> Float[Tensor, "*k 2"]:
    """Centres [m, world] of cells by number."""
    both = torch.stack([cell // CELLS, cell % CELLS], -1)
    return (both.to(torch.float64) - 0.5 * (CELLS - 1)) * CELL_M


def _far_apart(cell: Tensor) -> Tensor:
    """The order of cells (k, c), its second being the farthest of the next four from the first."""
    apart_m = (_middle(cell[:, 1:5]) - _middle(cell[:, :1])).norm(dim=-1)
    far = 1 + apart_m.argmax(1, keepdim=True)
    swapped = cell.clone()
    swapped[:, 1:2] = cell.gather(1, far)
    return swapped.scatter(1, far, torch.where(far == 1, swapped[:, 1:2], cell[:, 1:2]))


def _radii(wiring: BaseWiring) -> Float[Tensor, " s"]:
    """Radii of the circles around the shapes [m]."""
    sizes = {name: wiring.scene.model.geom(name).size for name in SHAPES}
    reach = [math.hypot(size[0], size[1]) if name[0] == "b" else size[0] for name, size in sizes.items()]
    return wiring.like.new_tensor(reach)
