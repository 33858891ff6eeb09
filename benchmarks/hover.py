"""Hover from 1,000 random starts with disturbance and noise: error over the last 2 s, by training time.

    python benchmarks/hover.py --seeds 5

The protocol is Learning to Fly in Seconds' (start distribution, disturbance, noise, box of 0.6 m, 5 s),
re-implemented. Names: hover/first_order/<budget>/position_error_m and .../terminated_fraction (mean over
seeds, every seed beside it), .../train_cpu_s, and hover/pid/..., hover/geometric/... on the same starts.
`--updates` sets the budgets.

    python benchmarks/hover.py --level rates --seeds 3 --updates 1300

measures the same with thrust and body rates as commands, delayed by 20 ms: hover/rates/first_order/...,
hover/rates/pid/...

    python benchmarks/hover.py --methods all --seeds 3 --budgets 30

compares learners at equal CPU seconds: hover/<method>/<budget>_cpu_s/position_error_m and
.../terminated_fraction, for first_order, first_order_lqr (initialised as the LQR law), shac, td3, sac and
ppo.

    python benchmarks/hover.py --first

is the first `robo-rl fly task=hover` after installation, with empty caches of compiled code:
fly/first_flight_s, from the command to the policy with table, film and bundle, and fly/first_flight_cpu_s.
Both lines hold the load of the machine: on an idle one the first is no larger than the second.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from pathlib import Path
from statistics import fmean

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from common import emit, parser
from hover_methods import ARMS, compare, picture

from robo_rl.conf.fly import FlyConfig
from robo_rl.core.flight.level import LEVELS
from robo_rl.flight.fly.runs import CONTROLLERS, SharedStarts, train_run
from robo_rl.flight.fly.setup import FlightSetup
from robo_rl.flight.rows import FlyRow


def main() -> None:
    options = parser(__doc__.splitlines()[0])
    options.add_argument("--seeds", type=int, default=5, help="trainings per budget, from seed 0")
    options.add_argument("--updates", default="700,1600", help="budgets in updates, by commas")
    options.add_argument("--craft", default="cf2x_l2f", help="which craft")
    options.add_argument("--level", default="motors", choices=LEVELS, help="command level")
    options.add_argument("--methods", help=f"compare these, by commas, or all: {', '.join(ARMS)}")
    options.add_argument(
        "--budgets", default="30,60", help="with --methods: CPU seconds of training, separated by commas"
    )
    options.add_argument(
        "--marks", type=int, default=6, help="with --methods: number of points on the first seed's curve"
    )
    options.add_argument("--picture", type=Path, help="with --methods: PNG file for these curves")
    options.add_argument("--first", action="store_true", help="time the first flight with empty caches")
    args = options.parse_args()
    torch.set_num_threads(1)
    if args.methods and args.level != "motors":
        raise SystemExit("--methods compares learners that command motors: leave out --level.")
    if args.first:
        first_flight(args.quick)
        return
    if args.methods:
        methods(args)
        return
    budgets = [10] if args.quick else [int(part) for part in args.updates.split(",")]
    small = {"seeds": 1, "eval_episodes": 100, "eager": True} if args.quick else {"seeds": args.seeds}
    setting = FlightSetup.of(FlyConfig(craft=args.craft, level=args.level))
    name = "hover" if args.level == "motors" else f"hover/{args.level}"
    for updates in budgets:
        config = FlyConfig(craft=args.craft, level=args.level, updates=updates, **small)
        with tempfile.TemporaryDirectory() as folder:
            config.out = str(Path(folder) / "run")
            rows, _ = train_run(config)
            shutil.rmtree(config.out)
        report(f"{name}/first_order/{updates}_updates", rows)
    for controller in CONTROLLERS:
        starts = SharedStarts.of(config, setting)
        trial = starts.fly(starts.controller(controller))
        report(f"{name}/{controller}", [FlyRow.of(controller, trial)])


def first_flight(quick: bool) -> None:
    """Time of the verb in a new process without compiled code from earlier runs."""
    with tempfile.TemporaryDirectory() as folder:
        places = ("ROBO_RL_CACHE", "TORCHINDUCTOR_CACHE_DIR")
        env = os.environ | {name: f"{folder}/{name}" for name in places}
        small = ["updates=10", "eval_episodes=100", "video=false"] if quick else []
        call = [sys.executable, "-m", "robo_rl", "fly", "task=hover", f"out={folder}/run", *small]
        load, start_s, before = os.getloadavg()[0], time.time(), os.times()
        subprocess.run(call, env=env, check=True, stdout=subprocess.DEVNULL)
        wall_s, after = time.time() - start_s, os.times()
        policy_s = Path(folder, "run", "policy", "policy.json").stat().st_mtime - start_s
        policy = json.loads(Path(folder, "run", "results.json").read_text())["rows"][0]
    used_s = after.children_user - before.children_user + after.children_system - before.children_system
    facts = {
        "until_policy_s": round(policy_s, 1),
        "load_before": round(load, 1),
        "load_after": round(os.getloadavg()[0], 1),
        "cores": os.cpu_count(),
        "position_error_m": policy["position_error_m"],
        "train_cpu_s": policy["train_cpu_s"],
        "compile_cpu_s": policy["compile_cpu_s"],
    }
    emit("fly/first_flight_s", round(wall_s, 1), "s", **facts)
    emit("fly/first_flight_cpu_s", round(used_s, 1), "cpu-s", **facts)


def methods(args: Namespace) -> None:
    """Write the table of learners at equal CPU seconds."""
    names = list(ARMS) if args.methods == "all" else args.methods.split(",")
    if unknown := sorted(set(names) - set(ARMS)):
        raise SystemExit(f"--methods {', '.join(unknown)}: unknown. Known: {', '.join(ARMS)}.")
    base = (
        FlyConfig(craft=args.craft, eval_episodes=100, eval_s=2.0, eager=True)
        if args.quick
        else FlyConfig(craft=args.craft)
    )
    budgets_s = [1.0] if args.quick else sorted(float(part) for part in args.budgets.split(","))
    seeds, marks, probe_s = (1, 1, 0.5) if args.quick else (args.seeds, args.marks, 4.0)
    curves = compare(names, base, budgets_s, seeds, marks, probe_s)
    if args.picture is not None:
        picture(args.picture, curves)


def report(name: str, rows: list[FlyRow]) -> None:
    """Mean over seeds and every seed; compilation time is reported separately from training."""
    errors = [math.inf if item.position_error_m is None else item.position_error_m for item in rows]
    ended = [item.terminated_fraction for item in rows]
    cpu_s = [item.train_cpu_s for item in rows]
    spent = {"train_cpu_s": round(fmean(cpu_s), 1)} if any(cpu_s) else {}
    if math.isfinite(fmean(errors)):  # otherwise no flight stayed, as the next line reports
        emit(
            f"{name}/position_error_m",
            round(fmean(errors), 4),
            "m",
            per_seed=[round(e, 4) for e in errors],
            **spent,
        )
    emit(f"{name}/terminated_fraction", round(fmean(ended), 4), "fraction", per_seed=ended)
    if spent:
        emit(f"{name}/train_cpu_s", round(fmean(cpu_s), 1), "cpu-s", per_seed=cpu_s,
             compile_cpu_s=max(item.compile_cpu_s for item in rows), env_steps=rows[0].env_steps)  # fmt: skip


if __name__ == "__main__":
    main()
