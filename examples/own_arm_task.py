"""A task of your own for an arm: push a cube 5 cm along x. Axes: k starting episodes, n worlds.

`weights` and `terms` define the dense reward; `expert` is the scripted controller of the demonstrations.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import robo_rl as rr
from robo_rl.apps.collect import main as collect
from robo_rl.conf.schema import CollectConfig
from sim.arms.control import Reach
from sim.tasks.scripted import between, toward
from sim.tasks.table import MANIPULATION


@dataclass(frozen=True)
class NudgeTask:
    """Push the cube 5 cm along x, without grasping it."""

    name: str = "nudge"
    scene: str = "lift.xml"  # in sim/assets, or an absolute path
    numbers: int = 1  # number of uniform numbers that the start of an episode needs
    max_steps: int = 60
    hold_steps: int = 1
    reach: Reach = field(default_factory=lambda: Reach(low_m=(0.2, -0.3, 0.015)))
    grips: bool = False
    ready_m: tuple = ((0.38, -0.05, 0.1), (0.42, 0.05, 0.2))
    obs_parts: tuple = (("cube from tool", 3, "m"), ("way to go", 1, "m"), ("joints", 7, "rad"))
    weights: dict = field(default_factory=lambda: {"way": 1.0})

    def edit(self, spec: Any) -> None:
        """Change nothing in the MJCF."""

    def start(self, uniform: Tensor, q_rad: Tensor, tool: Any, wiring: Any) -> tuple[Any, Tensor]:
        start = wiring.start(q_rad, opening_m=0.0)
        cube = wiring.loose["cube"][0]  # columns of qpos: position, quaternion
        start.qpos[:, cube.start] = 0.5
        start.qpos[:, cube.start + 1] = between(uniform[:, 0], -0.05, 0.05).to(q_rad)
        return start, start.qpos[:, cube.start : cube.start + 1] + 0.05  # the goal: x

    def observe(self, view: Any) -> Tensor:
        cube_m = view.object_pose("cube").m
        return torch.cat([cube_m - view.tool.m, view.goal - cube_m[:, :1], view.q_rad], -1)

    def solved(self, view: Any) -> Tensor:
        return view.object_pose("cube").m[:, 0] >= view.goal[:, 0]

    def terms(self, view: Any) -> dict[str, Tensor]:
        return {"way": 1.0 - (view.goal[:, 0] - view.object_pose("cube").m[:, 0]).clamp(0.0, 0.05) / 0.05}

    def expert(self, view: Any, reach: Reach) -> Any:
        offset_m = view.object_pose("cube").m - view.tool.m
        behind = (offset_m[:, 1].abs() < 0.01) & (offset_m[:, 2].abs() < 0.012)
        aside_m = torch.where(behind, 0.05, -0.06)
        zero = torch.zeros_like(aside_m)
        return toward(view.object_pose("cube").m + torch.stack([aside_m, zero, zero], -1), view, reach)


def main(out: Path, quick: bool = False) -> rr.Dataset:
    """Demonstrations of the task's expert, recorded as by `robo-rl collect task=nudge`."""
    MANIPULATION["nudge"] = ("own_arm_task:NudgeTask", None)
    episodes = 2 if quick else 20
    collect(CollectConfig("arm/nudge", str(out / "nudge"), episodes=episodes, num_envs=2, num_workers=0))
    data = rr.Dataset(out / "nudge")
    print(f"{len(data)} episodes of {data.spec.name}, all successful")
    return data


if __name__ == "__main__":
    main(Path("runs/examples/own_arm_task"))
