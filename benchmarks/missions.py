"""Missions in signal temporal logic: share of scenes that the flown path satisfies, per mission and pilot.

    python benchmarks/missions.py --scenes 100

A scene is satisfied when the exact margin of the flight, at 100 Hz with disturbance and sensor noise, is
above 0. `--seeds` is the number of trained policies; all fly the same scenes.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from statistics import fmean

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from common import cpu_seconds, emit, parser

from robo_rl.conf.mission import MissionConfig
from robo_rl.flight.mission.flights import POLICY, fly_mission, load_tracker, plan_mission
from sim.tasks.stl.scene import load_mission


def main() -> None:
    options = parser(__doc__.splitlines()[0])
    options.add_argument("--scenes", type=int, default=100, help="random scenes per mission")
    options.add_argument("--seeds", type=int, default=3, help="policies trained to follow curves")
    args = options.parse_args()
    torch.set_num_threads(1)
    config = MissionConfig(episodes=5 if args.quick else args.scenes)
    missions = [load_mission(name) for name in (config.missions[:2] if args.quick else config.missions)]
    with tempfile.TemporaryDirectory() as folder:
        trackers = []
        for seed in range(1 if args.quick else args.seeds):
            config.seed = seed
            few = {"updates": 5, "eager": True} if args.quick else {}
            trackers.append(load_tracker(config, Path(folder) / str(seed), **few))
    config.seed = 0
    for mission in missions:
        start_s = cpu_seconds()
        planned = plan_mission(config, mission)
        plan_cpu_s = round(cpu_seconds() - start_s, 1)
        name, formula = f"mission/{mission.name}", str(mission.formula)
        found = float((planned.plans.margin_m > 0.0).float().mean())
        emit(
            f"{name}/planned",
            found,
            "fraction",
            formula=formula,
            scenes=config.episodes,
            plan_cpu_s=plan_cpu_s,
        )
        rates = [fly_mission(config, planned, POLICY, tracker).satisfied.rate for tracker in trackers]
        emit(
            f"{name}/policy/satisfied",
            round(fmean(rates), 4),
            "fraction",
            per_seed=rates,
            scenes=config.episodes,
        )
        for pilot in config.controllers:
            rate = fly_mission(config, planned, pilot, trackers[0]).satisfied
            emit(f"{name}/{pilot}/satisfied", round(rate.rate, 4), "fraction", **rate.to_json())


if __name__ == "__main__":
    main()
