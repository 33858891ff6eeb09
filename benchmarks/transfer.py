"""Policies trained in the `quad` dynamics and flown unchanged in PyBullet: loss of success.

    python benchmarks/transfer.py --seeds 3

Each seed is trained by `robo-rl fly task=hover randomize=0.2` and flown on 1,000 starts with disturbance and
sensor noise in both engines, in PyBullet with ground effect, downwash and rotor drag. Names:
transfer/hover/<engine>/held, pooled over seeds, .../position_error_m and .../terminated_fraction, means over
seeds, and transfer/hover/drop_points, mean over seeds (positive: fewer held in PyBullet) with the exact
McNemar test of each seed. Further variants are "hover_randomized", where the drones of both engines vary by
20 %, and "hover_wake", 25 cm over the floor and 90 cm under another craft. `--tasks hover,figure8` selects
tasks; `--run` uses a trained run. `--tasks peg_insert` and other tasks of arms: see `transfer_arms.py`.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from statistics import fmean

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from common import emit, parser
from transfer_arms import ARMS, report_arm

from robo_rl.conf.fly import FlyConfig
from robo_rl.conf.transfer import TransferConfig
from robo_rl.eval.stats import SuccessRate
from robo_rl.flight.flight_run import load_flight_run
from robo_rl.flight.fly.runs import train_run
from robo_rl.flight.rows import Drop, TransferRow
from robo_rl.flight.transfer.flights import measure, scene_of
from sim.tasks.table import MANIPULATION

SCENES: dict[str, dict[str, float]] = {
    "": {},
    "_randomized": {"randomize": 0.2},
    "_wake": {"height_m": 0.25, "above_m": 0.9},
}


def main() -> None:
    options = parser(__doc__.splitlines()[0])
    options.add_argument("--seeds", type=int, default=3, help="trainings per task, from seed 0")
    options.add_argument(
        "--tasks", default="hover,figure8", help="tasks, separated by commas; flights or tasks of arms"
    )
    options.add_argument(
        "--folder", type=Path, default=Path("runs/transfer-arms"), help="folder of the trainings of arms"
    )
    options.add_argument("--arms", default=",".join(ARMS), help="trainings of arms, separated by commas")
    options.add_argument("--updates", type=int, default=900, help="updates of each training")
    options.add_argument("--episodes", type=int, default=1000, help="starts per policy and engine")
    options.add_argument("--run", type=Path, help="use the policies of this run instead of training")
    args = options.parse_args()
    torch.set_num_threads(1)
    seeds, episodes = (1, min(args.episodes, 20)) if args.quick else (args.seeds, args.episodes)
    tasks = args.tasks.split(",")
    for task in tasks[:1] if args.quick else tasks:
        if task in MANIPULATION:
            report_arm(task, args)
            continue
        with tempfile.TemporaryDirectory() as folder:
            run = args.run or trained(
                task, seeds, 5 if args.quick else args.updates, Path(folder) / "run", args.quick
            )
            policies = sorted(run.glob("seed*"))[:seeds]
            for name, changes in SCENES.items():
                if task == "hover" or not name.endswith("wake"):  # the figure is wider than the wake
                    report(
                        f"transfer/{task}{name}", [flown(policy, episodes, changes) for policy in policies]
                    )


def trained(task: str, seeds: int, updates: int, out: Path, eager: bool) -> Path:
    """A run of `robo-rl fly` with randomised training."""
    config = FlyConfig(
        task=task, randomize=0.2, seeds=seeds, updates=updates, eval_episodes=100, out=str(out), eager=eager
    )
    train_run(config)
    return out


def flown(policy: Path, episodes: int, changes: dict[str, float]) -> list[TransferRow]:
    """[in quad, in PyBullet]."""
    config = TransferConfig(run=str(policy), episodes=episodes)
    for key, value in changes.items():
        setattr(config, key, value)
    return measure(config, load_flight_run(config), scene_of(config))


def report(name: str, pairs: list[list[TransferRow]]) -> None:
    """Results in both engines, over all seeds and per seed."""
    for rows in zip(*pairs, strict=True):
        engine = rows[0].engine
        held = SuccessRate(sum(row.held.k for row in rows), sum(row.held.n for row in rows))
        per_seed = [row.held.rate for row in rows]
        emit(f"{name}/{engine}/held", round(held.rate, 4), "fraction", k=held.k, n=held.n,
             wilson95=[round(end, 4) for end in held.wilson()], seeds=per_seed)  # fmt: skip
        errors = [row.error_m for row in rows if row.error_m is not None]
        if errors:
            emit(f"{name}/{engine}/position_error_m", round(fmean(errors), 4), "m")
        left = fmean(row.left_fraction for row in rows)
        emit(f"{name}/{engine}/terminated_fraction", round(left, 4), "fraction")
    drops = [Drop.of(*rows) for rows in pairs]
    points = [drop.points for drop in drops]
    emit(
        f"{name}/drop_points",
        round(fmean(points), 2),
        "points",
        per_seed=[round(drop, 2) for drop in points],
        only_quad=[drop.test.only_first for drop in drops],
        only_pybullet=[drop.test.only_second for drop in drops],
        mcnemar_p=[round(drop.test.p_value, 4) for drop in drops],
    )


if __name__ == "__main__":
    main()
