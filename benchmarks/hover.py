"""Hover from 1,000 tumbling starts with disturbance and sensor noise: error over the last 2 s, per CPU-seconds trained.

    python benchmarks/hover.py --seeds 5

The protocol is Learning to Fly in Seconds' (start distribution, disturbance, noise, box of 0.6 m, 5 s), re-implemented.
Names: hover/first_order/<budget>/position_error_m and .../terminated_fraction (mean over seeds, every seed beside it),
.../train_cpu_s, and hover/pid/..., hover/geometric/... on the same starts. `--updates` sets the budgets.
"""

from __future__ import annotations

import math
import os
import shutil
import tempfile
from pathlib import Path
from statistics import fmean

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from common import emit, parser

from robo_rl.apps.fly import CONTROLLERS, FlyRow, Setting, evaluated, row, train_all
from robo_rl.apps.run_dir import RunDir
from robo_rl.conf.fly import FlyConfig
from sim.engines.quad.trial import controller_pilot


def main() -> None:
    options = parser(__doc__.splitlines()[0])
    options.add_argument("--seeds", type=int, default=5, help="trainings per budget, from seed 0")
    options.add_argument("--updates", default="900,1900", help="budgets in updates, by commas")
    options.add_argument("--craft", default="cf2x_l2f", help="which craft")
    args = options.parse_args()
    torch.set_num_threads(1)
    budgets = [150] if args.quick else [int(part) for part in args.updates.split(",")]
    setting = Setting.of(FlyConfig(craft=args.craft))
    for updates in budgets:
        config = FlyConfig(craft=args.craft, updates=updates, seeds=1 if args.quick else args.seeds)
        with tempfile.TemporaryDirectory() as folder:
            config.out = str(Path(folder) / "run")
            rows, _ = train_all(config, setting, RunDir.create(config.out, config))
            shutil.rmtree(config.out)
        report(f"hover/first_order/{updates}_updates", rows)
    for name in CONTROLLERS:
        pilot = controller_pilot(name, setting.craft, setting.task.dt_s, config.eval_flights)
        report(f"hover/{name}", [row(name, evaluated(config, setting, pilot))])


def report(name: str, rows: list[FlyRow]) -> None:
    """Mean over seeds and every seed; compilation is told apart from training."""
    errors = [math.inf if item.position_error_m is None else item.position_error_m for item in rows]
    ended = [item.terminated_fraction for item in rows]
    cpu_s = [item.train_cpu_s for item in rows]
    spent = {"train_cpu_s": round(fmean(cpu_s), 1)} if any(cpu_s) else {}
    emit(f"{name}/position_error_m", round(fmean(errors), 4), "m", per_seed=[round(e, 4) for e in errors], **spent)
    emit(f"{name}/terminated_fraction", round(fmean(ended), 4), "fraction", per_seed=ended)
    if spent:
        emit(f"{name}/train_cpu_s", round(fmean(cpu_s), 1), "cpu-s", per_seed=cpu_s,
             compile_cpu_s=max(item.compile_cpu_s for item in rows), env_steps=rows[0].env_steps)  # fmt: skip


if __name__ == "__main__":
    main()
