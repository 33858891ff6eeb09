"""One drone in a field of cylinders: a learned policy compared with classical controllers on the same starts.

    python benchmarks/obstacles.py --seeds 3

Trained once per seed as `robo-rl fly task=obstacles` does, on densities between 0 and 80 %, and measured at
each of `--densities`. Names: obstacles/<density>/<pilot>/reached, the share of starts that come within 0.5 m
of a goal 9 m away and stay there without ever touching a cylinder, with its Wilson interval;
.../hit_a_cylinder; .../time_to_goal_s. Pilots: policy (all seeds together), pid_straight and
geometric_straight on the straight line, pid_planned on a path around the cylinders, planned with the true
map.
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

from policies.checkpoint import load_policy
from policies.flight.policy import FlightPolicy
from robo_rl.conf.fly import FlyConfig
from robo_rl.eval.stats import SuccessRate
from robo_rl.flight.fly.runs import SharedStarts, train_run
from robo_rl.flight.fly.setup import FlightSetup
from robo_rl.flight.rows import FlyRow
from sim.flight.trial import controller_pilot, policy_pilot

BASELINES = {
    "pid_straight": ("pid", False),
    "geometric_straight": ("geometric", False),
    "pid_planned": ("pid", True),
}


def main() -> None:
    options = parser(__doc__.splitlines()[0])
    options.add_argument("--seeds", type=int, default=3, help="trainings, from seed 0")
    options.add_argument("--densities", type=float, nargs="*", default=[0.2, 0.4, 0.8], help="measured with")
    options.add_argument("--craft", default="cf2x_l2f", help="which craft")
    options.add_argument(
        "--run", type=Path, help="a finished run of robo-rl fly task=obstacles: measure its policies"
    )
    args = options.parse_args()
    torch.set_num_threads(1)
    small = (
        {"updates": 3, "seeds": 1, "eval_episodes": 50, "eval_s": 4.0, "eager": True}
        if args.quick
        else {"seeds": args.seeds}
    )
    config = FlyConfig(task="obstacles", craft=args.craft, **small)
    with tempfile.TemporaryDirectory() as folder:
        run = args.run or Path(folder) / "run"
        costs = [] if args.run else [item.train_cpu_s for item in trained(config, run)]
        policies = [policy for seed in range(config.seeds) if (policy := load(run / f"seed{seed}"))]
        for density in args.densities[:1] if args.quick else args.densities:
            measure(replace(config, density=density), policies, costs)


def trained(config: FlyConfig, run: Path) -> list[FlyRow]:
    config = replace(config, out=str(run))
    return train_run(config)[0]


def load(folder: Path) -> FlightPolicy:
    policy = load_policy(folder)
    assert isinstance(policy, FlightPolicy)
    return policy


def measure(config: FlyConfig, policies: list[FlightPolicy], costs: list[float]) -> None:
    setting, name = FlightSetup.of(config), f"obstacles/{config.density:.0%}"
    learned = [
        FlyRow.of("policy", SharedStarts.of(config, setting).fly(policy_pilot(policy.columns)))
        for policy in policies
    ]
    cost = {"train_cpu_s": round(fmean(costs), 1)} if costs else {}
    tell(f"{name}/policy", learned, **cost)
    for pilot, (controller, planner) in BASELINES.items():
        led = FlightSetup.of(replace(config, planner=planner))
        made = controller_pilot(controller, led.craft, led.task.dt_s, config.eval_episodes)
        tell(f"{name}/{pilot}", [FlyRow.of(pilot, SharedStarts.of(config, led).fly(made))])


def tell(name: str, rows: list[FlyRow], **extra: float) -> None:
    """Success and collisions of all seeds together, and the time to goal of successful flights."""
    total = SuccessRate(sum(item.held.k for item in rows), sum(item.held.n for item in rows))
    emit(f"{name}/reached", total.rate, "share", k=total.k, n=total.n, wilson95=list(total.wilson()),
         per_seed=[item.held.rate for item in rows], **extra)  # fmt: skip
    emit(f"{name}/hit_a_cylinder", fmean(item.facts["hit_a_cylinder"] or 0.0 for item in rows), "share")
    times = [value for item in rows if (value := item.facts["time_to_goal_s"]) is not None]
    if times:
        emit(f"{name}/time_to_goal_s", round(fmean(times), 2), "s")


if __name__ == "__main__":
    main()
