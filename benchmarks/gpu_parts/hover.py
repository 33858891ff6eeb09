"""A hovering policy from scratch: seconds of training on the device, and what the policy can do.

gpu/hover/train_s: wall seconds from the first update to the trained policy, with kernels and graph built
before. gpu/hover/build_s: that building, with kernels from the disk cache if they are there.
gpu/hover/position_error_m and gpu/hover/terminated_fraction: the protocol of benchmarks/hover.py, 1,000
starts on the CPU. Means over seeds, every seed beside them.
"""

from __future__ import annotations

import math
import time
from dataclasses import replace
from statistics import fmean
from typing import cast

# isort: off
from timing import emit, facts  # first: it adds benchmarks/ to the path
from common import parser

# isort: on
import torch

from policies.flight.policy import FlightPolicy
from robo_rl.conf.fly import FlyConfig
from robo_rl.flight.fly.learners import device_training, new_policy
from robo_rl.flight.fly.runs import SharedStarts, fly_setup
from robo_rl.flight.fly.setup import FlightSetup
from robo_rl.flight.rows import FlyRow
from robo_rl.nets.optim.graphs import GraphCache
from robo_rl.rl.differentiable.windowed import WindowedFirstOrder
from sim.flight.trial import policy_pilot

FLIGHTS, UPDATES = 1024, 700


def main() -> None:
    options = parser(__doc__.splitlines()[0])
    options.add_argument("--device", default="cuda", choices=("cuda", "cpu"), help="device that trains")
    options.add_argument("--seeds", type=int, default=3, help="trainings, from seed 0")
    options.add_argument("--flights", type=int, default=FLIGHTS, help="parallel flights")
    options.add_argument("--updates", type=int, default=UPDATES, help="updates of the policy")
    options.add_argument("--horizon", type=int, default=0, help="steps of a window; 0: the task's")
    options.add_argument("--lr", type=float, default=0.0, help="learning rate at the start; 0: the task's")
    options.add_argument("--graphs", default="auto", choices=("auto", "off"), help="capture updates on a GPU")
    args = options.parse_args()
    torch.set_num_threads(1)
    config = FlyConfig(
        device=args.device, flights=args.flights, updates=args.updates, horizon=args.horizon, lr=args.lr
    )
    if args.quick:
        args.seeds, config = 1, replace(config, flights=64, updates=10, eval_episodes=100)
    config, setting = fly_setup(config)
    results = [trained(config, setting, seed, args.graphs) for seed in range(args.seeds)]
    about = facts(args.device) | {"flights": config.flights, "updates": config.updates, "graphs": args.graphs}
    for place, (name, unit, digits) in enumerate((
        ("train_s", "s", 3), ("build_s", "s", 2), ("position_error_m", "m", 4),
        ("terminated_fraction", "fraction", 4),
    )):  # fmt: skip
        found = [round(result[place], digits) for result in results]
        emit(f"gpu/hover/{name}", round(fmean(found), digits), unit, per_seed=found, **about)


def trained(
    config: FlyConfig, setting: FlightSetup, seed: int, graphs: str
) -> tuple[float, float, float, float]:
    """(seconds of training, seconds of building, error [m], share of flights that ended early)."""
    start_s = time.perf_counter()
    policy = new_policy(config, setting, seed)
    made = device_training(config, setting, seed, policy, torch.device(config.device))
    trainer = cast("WindowedFirstOrder", made.trainer)
    if graphs == "off":
        trainer.graphs = GraphCache()
    trainer.build()
    built_s = finished_s(config.device)
    while not trainer.done:
        trainer.update()
    made.after()
    trained_s = finished_s(config.device)
    trial = SharedStarts.of(config, setting).fly(policy_pilot(cast("FlightPolicy", made.policy).columns))
    row = FlyRow.of("policy", trial)
    error_m = math.inf if row.position_error_m is None else row.position_error_m
    return trained_s - built_s, built_s - start_s, error_m, row.terminated_fraction


def finished_s(device: str) -> float:
    """The time once the device has finished."""
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


if __name__ == "__main__":
    main()
