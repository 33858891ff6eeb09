"""Environment steps per CPU-second, in this process and through workers, with random actions.

CPU seconds include the workers, so the result is the cost of a step, independent of the number of cores.
`package` is MetaWorld as published, with one environment and the dense reward, for comparison with our
adapter.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch
from common import cpu_seconds, emit, parser

from robo_rl.core.seeding import EpisodeSeeds
from sim.registry import make_env

NAMES = (
    "metaworld/peg-insert-side-v3",
    "metaworld/assembly-v3",
    "metaworld/pick-place-v3",
    "pusht/state",
    "pusht/pixels",
    "gym/Hopper-v5",
    "gym/HalfCheetah-v5",
)


def measure(name: str, lanes: int, workers: int, budget_s: float) -> None:
    """Step for about `budget_s` CPU seconds, resets included, and emit the rate."""
    with make_env(name, lanes, workers) as env:
        env.reset(EpisodeSeeds("benchmark"))
        shape = (lanes, env.spec.action.dim)
        generator = torch.Generator().manual_seed(0)
        actions = [
            env.spec.action.denormalize(torch.rand(shape, generator=generator) * 2 - 1) for _ in range(64)
        ]
        for action in actions[:5]:
            env.step(action)
        steps, cpu_s, wall_s = 0, cpu_seconds(), time.monotonic()
        while (spent_s := cpu_seconds() - cpu_s) < budget_s:
            for action in actions:
                env.step(action)
            steps += lanes * len(actions)
        wall_s = time.monotonic() - wall_s
    extra = {"lanes": lanes, "workers": workers, "steps_per_wall_s": round(steps / wall_s)}
    emit(f"env/{name}/steps_per_cpu_s", round(steps / spent_s), "env steps/cpu-s", **extra)


def measure_package(task: str, budget_s: float) -> None:
    """The package's own step and reset, horizon 200."""
    from metaworld.env_dict import ALL_V3_ENVIRONMENTS

    env = ALL_V3_ENVIRONMENTS[task]()
    env._partially_observable, env._freeze_rand_vec, env._set_task_called = False, False, True
    del env.sawyer_observation_space
    actions = np.random.default_rng(0).uniform(-1, 1, (200, 4)).astype(np.float32)
    env.reset()
    steps, cpu_s = 0, cpu_seconds()
    while (spent_s := cpu_seconds() - cpu_s) < budget_s:
        env.reset()
        for action in actions:
            env.step(action)
        steps += len(actions)
    name = f"env/package-metaworld/{task}/steps_per_cpu_s"
    emit(name, round(steps / spent_s), "env steps/cpu-s", lanes=1, workers=0)


def main(options: argparse.Namespace) -> None:
    budget_s = 1.0 if options.quick else 5.0
    for name in options.names or NAMES:
        suite, _, task = name.partition("/")
        if suite == "metaworld":
            measure_package(task, budget_s)
        measure(name, options.lanes, 0, budget_s)
        if not options.quick:
            measure(name, options.lanes, 2, budget_s)


if __name__ == "__main__":
    torch.set_num_threads(1)
    options = parser("Environment steps per CPU-second.")
    options.add_argument("names", nargs="*", help="environments; none for the usual ones")
    options.add_argument("--lanes", type=int, default=8, help="environments stepped together")
    main(options.parse_args())
