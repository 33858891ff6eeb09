"""Settings of `robo-rl mission`."""

from __future__ import annotations

from dataclasses import dataclass, field

from robo_rl.conf.fields import at_least
from sim.tasks.stl.plan import PlanConfig


@dataclass
class MissionConfig(PlanConfig):
    """`robo-rl mission`: plan and fly missions that are written in signal temporal logic."""

    missions: list[str] = field(
        default_factory=lambda: ["reach", "avoid", "order", "patrol", "key"]
    )  # names, or YAML
    run: str | None = None  # a run of `robo-rl fly task=figure8`, whose policy flies; none: train one first
    controllers: list[str] = field(
        default_factory=lambda: ["pid"]
    )  # classical controllers to lay beside the policy
    scenes: int = at_least(1, 50)  # random scenes of every mission
    seed: int = at_least(0, 0)  # which scenes
    out: str = "runs/mission"  # results.json and missions.png go here
    overwrite: bool = False  # replace what is in `out`
