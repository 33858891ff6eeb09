"""`robo-rl mission`: plan missions given as formulas, fly the plans, and evaluate them by the same
formulas.
"""

from __future__ import annotations

from pathlib import Path

import torch

from robo_rl.conf.mission import MissionConfig
from robo_rl.core.errors import ConfigError, UnknownNameError
from robo_rl.flight.mission.flights import fly_missions, load_tracker, plan_mission
from robo_rl.flight.mission.report import finish
from robo_rl.runs.run_dir import RunDir
from sim.flight.control.controllers import CONTROLLERS
from sim.tasks.stl.scene import load_mission


def main(config: MissionConfig) -> int:
    """Plan, fly, print the table, and write results.json and missions.png into `out`."""
    torch.set_num_threads(1)
    if not config.missions:
        raise ConfigError("missions=[] names no mission. Name some, such as missions=[reach,patrol].")
    missions = [load_mission(name) for name in config.missions]  # wrong names stop the run before the work
    for name in config.controllers:
        if name not in CONTROLLERS:
            raise UnknownNameError("controller", name, CONTROLLERS)
    out = Path(config.out)
    given = None if config.run is None else load_tracker(config, out)  # a wrong run leaves no folder
    with RunDir.create(config.out, config, resume=config.resume, overwrite=config.overwrite) as run:
        tracker = given or load_tracker(config, out)
        planned = [plan_mission(config, mission) for mission in missions]
        return finish(run, planned, fly_missions(config, planned, tracker))
