"""FastTD3 and FastSAC compared with TD3 and SAC, on many environments and one CPU core, in one run.

    python benchmarks/many_lanes.py --seeds 3

All learn from the same number of environment steps, with the same networks, discount, learning rate and
reward scale, and about the same CPU time: the categorical critics do fewer updates of larger batches. What
remains of each method is its own (`robo_rl/conf/method/`). Names: many_lanes/<env>/<method>/return (of the
best evaluated policy, on episodes that no selection has seen) and many_lanes/<env>/<method>/env_steps: steps
to the first evaluation above `reach`; a seed that never gets there counts as all steps.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from common import emit, parser, verb

from robo_rl.core.files.durable import read_json
from robo_rl.core.process_signals import exit_with_parent

METHODS = ("fast_td3", "fast_sac", "td3", "sac")
FINAL_EPISODES = 20


@dataclass(frozen=True)
class Task:
    """Settings that all methods share. v_min, v_max: range of the scaled, discounted returns."""

    env: str
    lanes: int
    env_steps: int
    reach: float
    lr: float
    hidden: tuple[int, ...]
    reward_scale: float
    v_min: float
    v_max: float


TASKS = {
    "Pendulum-v1": Task("gym/Pendulum-v1", 128, 24_576, -200.0, 1e-3, (64, 64), 0.1, -60.0, 10.0),
    "HalfCheetah-v5": Task("gym/HalfCheetah-v5", 64, 102_400, 1000.0, 3e-4, (128, 64), 0.1, -10.0, 30.0),
}
# updates per step of all environments, and their batch: about equal CPU time
UPDATES = {"fast_td3": (8, 512), "fast_sac": (8, 512), "td3": (16, 256), "sac": (8, 256)}


def main() -> None:
    options = parser(__doc__.splitlines()[0])
    options.add_argument("--env", choices=TASKS, default="Pendulum-v1", help="Gymnasium task")
    options.add_argument("--methods", default=",".join(METHODS), help="methods, separated by commas")
    options.add_argument("--seeds", type=int, default=3, help="trainings per method")
    options.add_argument("--jobs", type=int, default=2, help="number of parallel trainings")
    args = options.parse_args()
    task, names = TASKS[args.env], args.methods.split(",")
    env_steps = 20 * task.lanes if args.quick else task.env_steps
    seeds = range(1 if args.quick else args.seeds)
    found: dict[str, dict[int, dict[str, Any]]] = {name: {} for name in names}
    with ProcessPoolExecutor(args.jobs, initializer=exit_with_parent) as pool:
        runs = {
            pool.submit(train, task, name, seed, env_steps): (name, seed) for name in names for seed in seeds
        }
        for run in as_completed(runs):
            name, seed = runs[run]
            found[name][seed] = run.result()
            print(f"{name} seed {seed}: {found[name][seed]}", file=sys.stderr, flush=True)
            if len(found[name]) == len(seeds):
                report(args.env, task, name, [found[name][each] for each in seeds], env_steps)


def train(task: Task, name: str, seed: int, env_steps: int) -> dict[str, Any]:
    """Return of the final policy, steps to `reach`, and CPU time of one training."""
    torch.set_num_threads(1)
    updates, batch = UPDATES[name]
    layers = str(list(task.hidden)).replace(" ", "")
    categorical = {"critic_hidden": layers, "v_min": task.v_min, "v_max": task.v_max}
    learner: dict[str, Any] = {
        "hidden": layers, "batch": batch, "gamma": 0.97, "lr_actor": task.lr, "lr_critic": task.lr,
        **(categorical if name.startswith("fast") else {}),
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        start_s, out = time.process_time(), Path(folder) / "run"
        verb(
            "finetune", f"method={name}", f"env={task.env}", f"out={out}", f"seed={seed}",
            f"env_steps={env_steps}", f"num_envs={task.lanes}", f"method.base_steps={10 * task.lanes}",
            f"method.updates_per_step={updates}", f"method.reward_scale={task.reward_scale}",
            "method.replay_capacity=200000", f"eval_every={max(env_steps // 8, 1)}", "eval_episodes=5",
            f"final_episodes={FINAL_EPISODES}", "checkpoint_every=1000000000",
            *(f"method.learner.{key}={value}" for key, value in learner.items()),
        )  # fmt: skip
        results = read_json(out / "results.json")
        totals, curve = results["policy"]["returns"], results["curve"]
        reached = [
            steps
            for steps, value in zip(curve["env_steps"], curve["returns"], strict=True)
            if value > task.reach
        ]
        return {
            "return": round(sum(totals) / len(totals), 1),
            "env_steps": min(reached, default=env_steps),
            "reached": bool(reached),
            "selection_steps": results["steps"]["selection"],
            "cpu_s": round(time.process_time() - start_s, 1),
        }


def report(env: str, task: Task, name: str, runs: list[dict[str, Any]], env_steps: int) -> None:
    """Both lines of a method."""
    updates, batch = UPDATES[name]
    shared = {
        "seeds": len(runs), "lanes": task.lanes, "hidden": list(task.hidden), "updates_per_step": updates,
        "batch": batch, "cpu_s": round(sum(run["cpu_s"] for run in runs) / len(runs), 1),
    }  # fmt: skip
    returns = [run["return"] for run in runs]
    line = f"many_lanes/{env}/{name}"
    mean = round(sum(returns) / len(returns), 1)
    chosen = [run["selection_steps"] for run in runs]  # of the evaluations, beside those of training
    emit(
        f"{line}/return", mean, "sum of rewards", per_seed=returns, env_steps=env_steps,
        selection_steps=round(sum(chosen) / len(chosen)), **shared,
    )  # fmt: skip
    steps = [run["env_steps"] for run in runs]
    emit(
        f"{line}/env_steps", round(sum(steps) / len(steps)), "env steps", per_seed=steps, reach=task.reach,
        reached=sum(run["reached"] for run in runs), **shared,
    )  # fmt: skip


if __name__ == "__main__":
    main()
