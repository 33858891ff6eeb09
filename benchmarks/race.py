"""Waypoints and gate races: a learned policy compared with classical controllers on the same starts.

    python benchmarks/race.py --seeds 3

Trained as `robo-rl fly task=waypoints` and `task=race track=...` do. Names:
race/<track>/<pilot>/laps_completed, the share of starts that flew two laps or more, with its Wilson interval;
.../lap_time_s, the median flying lap, with the best; waypoints/<pilot>/completed and .../time_per_waypoint_s.
Pilots: policy (mean over seeds), pid, geometric. In a race the controllers follow a smooth path at the
fastest of several speeds with at least 95 % of laps completed, or at the speed with most completed laps.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import replace
from pathlib import Path
from statistics import fmean

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from common import emit, parser

from robo_rl.conf.fly import FlyConfig
from robo_rl.eval.stats import SuccessRate
from robo_rl.flight.fly.runs import SharedStarts, train_run
from robo_rl.flight.fly.setup import FlightSetup
from robo_rl.flight.rows import FlyRow
from sim.flight.trial import controller_pilot
from sim.tasks.flight.race import RaceTask
from sim.tasks.flight.track import list_tracks

CONTROLLERS = ("pid", "geometric")
SPEEDS_M_S = (
    1.25,
    1.5,
    1.75,
    2.0,
    2.5,
    3.0,
)  # speeds along the controllers' path; two laps at the slowest take about 19 s


def main() -> None:
    options = parser(__doc__.splitlines()[0])
    options.add_argument("--seeds", type=int, default=3, help="trainings, from seed 0")
    options.add_argument("--tracks", nargs="*", default=list_tracks(), help="which tracks")
    options.add_argument("--craft", default="cf2x_l2f", help="which craft")
    options.add_argument("--skip-waypoints", action="store_true", help="races only")
    args = options.parse_args()
    torch.set_num_threads(1)
    small = (
        {"updates": 3, "seeds": 1, "eval_episodes": 50, "eval_s": 5.0, "eager": True}
        if args.quick
        else {"seeds": args.seeds}
    )
    if not args.skip_waypoints:
        waypoints(FlyConfig(task="waypoints", craft=args.craft, **small))
    for track in args.tracks[:1] if args.quick else args.tracks:
        race(FlyConfig(task="race", track=track, craft=args.craft, **small), args.quick)


def trained(config: FlyConfig) -> list[FlyRow]:
    with tempfile.TemporaryDirectory() as folder:
        config.out = str(Path(folder) / "run")
        return train_run(config)[0]


def flown(config: FlyConfig, setting: FlightSetup, pilot: str) -> FlyRow:
    made = controller_pilot(pilot, setting.craft, setting.task.dt_s, config.eval_episodes)
    return FlyRow.of(pilot, SharedStarts.of(config, setting).fly(made))


def waypoints(config: FlyConfig) -> None:
    setting = FlightSetup.of(config)
    for pilot, rows in {
        "policy": trained(config),
        **{name: [flown(config, setting, name)] for name in CONTROLLERS},
    }.items():
        share(f"waypoints/{pilot}/completed", rows)
        fact(f"waypoints/{pilot}/time_per_waypoint_s", "time_per_waypoint_s", rows)


def race(config: FlyConfig, quick: bool) -> None:
    setting = FlightSetup.of(config)
    assert isinstance(setting.task, RaceTask)
    name = f"race/{config.track}"
    rows = trained(config)
    share(f"{name}/policy/laps_completed", rows)
    best = min((row.facts["lap_time_best_s"] or float("inf") for row in rows), default=float("inf"))
    fact(f"{name}/policy/lap_time_s", "lap_time_s", rows, best_s=best)
    for pilot in CONTROLLERS:
        tried: dict[float, FlyRow] = {}
        for speed in SPEEDS_M_S[1:2] if quick else SPEEDS_M_S:
            task = replace(setting.task, baseline_speed_m_s=speed)
            tried[speed] = flown(config, replace(setting, task=task), pilot)
            if tried[speed].held.rate < 0.5:
                break
        good = [speed for speed, item in tried.items() if item.held.rate >= 0.95]
        speed = max(good) if good else max(tried, key=lambda key: tried[key].held.rate)
        share(f"{name}/{pilot}/laps_completed", [tried[speed]], path_m_s=speed)
        fact(f"{name}/{pilot}/lap_time_s", "lap_time_s", [tried[speed]], path_m_s=speed)


def share(name: str, rows: list[FlyRow], **extra: float) -> None:
    """Success over all seeds, with its interval, and per seed."""
    total = SuccessRate(sum(item.held.k for item in rows), sum(item.held.n for item in rows))
    per_seed = [item.held.rate for item in rows]
    emit(name, total.rate, "share", k=total.k, n=total.n, wilson95=list(total.wilson()), per_seed=per_seed,
         train_cpu_s=round(fmean(item.train_cpu_s for item in rows), 1), **extra)  # fmt: skip


def fact(name: str, key: str, rows: list[FlyRow], **extra: float) -> None:
    """A figure of the task, mean over seeds; nothing if no seed has one."""
    known = [value for item in rows if (value := item.facts[key]) is not None]
    if known:
        emit(name, round(fmean(known), 3), "s", per_seed=[round(value, 3) for value in known], **extra)


if __name__ == "__main__":
    main()
