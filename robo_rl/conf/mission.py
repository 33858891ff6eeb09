"""Settings of `robo-rl mission`."""

from __future__ import annotations

from dataclasses import dataclass

from robo_rl.conf.fields import setting
from sim.tasks.stl.plan import PlanConfig


@dataclass
class MissionConfig(PlanConfig):
    """`robo-rl mission`: plan and fly missions that are written in signal temporal logic."""

    missions: list[str] = setting(["reach", "avoid", "order", "patrol", "key"], "names, or YAML")
    run: str | None = setting(
        None, "a run of `robo-rl fly task=figure8`, whose policy flies; none: train one first"
    )
    controllers: list[str] = setting(["pid"], "classical controllers to lay beside the policy")
    episodes: int = setting(
        50, "random scenes of every mission, one flight of each pilot in each", at_least=1
    )
    seed: int = setting(0, "which scenes", at_least=0)
    out: str = setting("runs/mission", "results.json and missions.png go here")
    overwrite: bool = setting(False, "replace what is in `out`")
