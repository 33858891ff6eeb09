"""Figure-eight at 2 m/s: root mean square error of a learned policy and of classical controllers.

    python benchmarks/tracking.py --seeds 3

The policy is trained on random Lissajous curves by `robo-rl fly task=figure8`, never on the figure itself.
Names: tracking/figure8/<pilot>/rmse_m in nominal dynamics (no disturbance; sensors stay noisy),
.../disturbed_rmse_m with a constant force and torque in every episode. Pilots: learned (mean over seeds),
pid, geometric, mellinger, lqr.
"""

from __future__ import annotations

import os
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from statistics import fmean

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from common import emit, parser

from policies.checkpoint import load_policy
from policies.flight.policy import FlightPolicy
from robo_rl.conf.fly import FlyConfig
from robo_rl.flight.fly.runs import SharedStarts, train_run
from robo_rl.flight.fly.setup import FlightSetup
from robo_rl.flight.rows import FlyRow
from sim.flight.trial import Pilot, controller_pilot, policy_pilot

CONTROLLERS = ("pid", "geometric", "mellinger", "lqr")


def main() -> None:
    options = parser(__doc__.splitlines()[0])
    options.add_argument("--seeds", type=int, default=3, help="trainings, from seed 0")
    options.add_argument("--updates", type=int, default=900, help="updates of each training")
    options.add_argument("--speed", type=float, default=2.0, help="largest speed on the figure, m/s")
    options.add_argument("--craft", default="cf2x_l2f", help="which craft")
    args = options.parse_args()
    torch.set_num_threads(1)
    small = (
        {"updates": 5, "eval_episodes": 100, "eval_s": 3.0, "eager": True}
        if args.quick
        else {"updates": args.updates}
    )
    seeds = 1 if args.quick else args.seeds
    config = FlyConfig(task="figure8", craft=args.craft, speed_m_s=args.speed, seeds=seeds, **small)
    disturbed = FlightSetup.of(config)
    nominal = replace(disturbed, task=replace(disturbed.task, force_std=0.0, torque_std=0.0))
    with tempfile.TemporaryDirectory() as folder:
        config.out = str(Path(folder) / "run")
        rows, _ = train_run(config)
        policies = [load_policy(Path(config.out) / f"seed{item.seed}") for item in rows]
    pilots: dict[str, list[Pilot]] = {
        "learned": [policy_pilot(policy.columns) for policy in policies if isinstance(policy, FlightPolicy)]
    }
    for name, setting in (("rmse_m", nominal), ("disturbed_rmse_m", disturbed)):
        pilots |= {
            pilot: [controller_pilot(pilot, setting.craft, setting.task.dt_s, config.eval_episodes)]
            for pilot in CONTROLLERS
        }
        for pilot, flown in pilots.items():
            results = [FlyRow.of(pilot, SharedStarts.of(config, setting).fly(one)) for one in flown]
            extra = (
                {"train_cpu_s": round(fmean(item.train_cpu_s for item in rows), 1)}
                if pilot == "learned"
                else {}
            )
            report(f"tracking/figure8/{pilot}/{name}", results, extra)


def report(name: str, rows: list[FlyRow], extra: dict[str, float]) -> None:
    """Mean over seeds; no line if no flight of some seed stayed, because its error is undefined."""
    errors = [item.position_error_m for item in rows if item.position_error_m is not None]
    ended = fmean(item.terminated_fraction for item in rows)
    if len(errors) < len(rows):
        print(
            f"{name}: no flight stayed in {len(rows) - len(errors)} seeds ({ended:.1%} left)", file=sys.stderr
        )
        return
    per_seed = [round(error, 4) for error in errors]
    emit(name, round(fmean(errors), 4), "m", per_seed=per_seed, terminated_fraction=ended, **extra)


if __name__ == "__main__":
    main()
