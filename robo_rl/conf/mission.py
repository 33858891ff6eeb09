"""Settings of `robo-rl mission`."""

from __future__ import annotations

from dataclasses import dataclass

from robo_rl.conf.fields import setting
from sim.tasks.stl.plan import PlanConfig


@dataclass
class MissionConfig(PlanConfig):
    """`robo-rl mission`: plan and fly missions in signal temporal logic."""

    missions: list[str] = setting(
        ["reach", "avoid", "order", "patrol", "key"], "missions by name, or YAML files"
    )
    run: str | None = setting(
        None, "a run of `robo-rl fly task=figure8`, whose policy flies; none: train one first"
    )
    controllers: list[str] = setting(["pid"], "classical controllers that fly the same paths for comparison")
    episodes: int = setting(
        50, "random scenes per mission; the policy and each controller fly each once", at_least=1
    )
    seed: int = setting(0, "seed of the scenes", at_least=0)
    out: str = setting("runs/mission", "folder for results.json and missions.png")
    resume: bool = setting(
        False, "continue the run in `out`: an unfinished tracker is trained on, and all missions are flown"
    )
    overwrite: bool = setting(False, "replace what is in `out`")
