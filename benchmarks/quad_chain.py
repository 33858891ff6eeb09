"""Workflow of arms on a quadcopter: PID demonstrations, flow base, residual, single-step head, bundle.

    python benchmarks/quad_chain.py --seeds 3

Each seed has its own demonstrations, base, residual and head. All policies and the demonstrating PID fly the
same 100 starts, which are not used in training. Names: quad_chain/<task>/<who>/success (over all seeds, with
its Wilson interval and every seed beside it), .../error_m (of those that stayed), quad_chain/<task>/cpu_s
(all four stages, per seed) and quad_chain/<task>/deadlines_missed (the bundle at 100 Hz). What a seed has
finished in `--folder` is kept.
"""

from __future__ import annotations

import json
import os
from itertools import chain, count
from pathlib import Path
from statistics import fmean
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported

import torch
from common import cpu_seconds, emit, own_folder, parser, verb

from robo_rl.eval.rollout import eval_seeds
from robo_rl.eval.stats import SuccessRate
from robo_rl.runs.demonstrators import ExpertDemonstrator
from sim.registry import make_env, make_expert

# with the last actions in its observation, a base copies them and ignores its position
TASK = "hover:history=0"
FINAL_SEED = 1  # of the reported starts; evaluations during training use 0
COLLECT = {"episodes": 200, "num_envs": 100}
TRAIN = {
    "steps": 8000,
    "batch_size": 256,
    "chunk": 4,
    "execute": 1,
    "net": "mlp",
    "net.width": 256,
    "process.steps": 5,
}
FINETUNE = {"method": "residual_dense", "num_envs": 64, "eval_every": 20_000, "eval_episodes": 64,
            "final_episodes": 64, "checkpoint_every": 40_000}  # fmt: skip
DISTILL = {
    "net": "mlp",
    "net.width": 128,
    "steps": 1500,
    "rollout_steps": 16_000,
    "round_steps": 8000,
    "num_envs": 64,
    "eval_episodes": 10,
}
QUICK: dict[str, dict[str, Any]] = {
    "collect": {"episodes": 4, "num_envs": 4},  # full flights: none that is cut short succeeds
    "train": {"steps": 100},
    "finetune": {
        "env_steps": 1200,
        "num_envs": 8,
        "method.base_steps": 800,
        "method.burn_in": 20,
        "eval_every": 0,
        "max_episode_steps": 200,
    },
    "distill": {
        "steps": 50,
        "rollout_steps": 400,
        "round_steps": 400,
        "rounds": 1,
        "num_envs": 8,
        "max_episode_steps": 200,
    },
}
WHO = {"base": 1.0, "base_zero_noise": 0.0, "residual": None, "head": None}  # scale of the initial noise


def main() -> None:
    options = parser(__doc__.splitlines()[0])
    options.add_argument("--task", default=TASK, help="task of the quad suite, with options")
    options.add_argument("--seeds", type=int, default=3, help="chains, from seed 0")
    options.add_argument(
        "--folder",
        type=Path,
        default=Path("runs/quad_chain"),
        help="folder of finished stages, which are kept",
    )
    args = options.parse_args()
    torch.set_num_threads(1)
    episodes, folder = 10 if args.quick else 100, own_folder(args.folder) / args.task.replace(":", "-")
    name = f"quad_chain/{args.task.partition(':')[0]}"
    seeds = range(1 if args.quick else args.seeds)
    results = [
        run_seed(f"quad/{args.task}", seed, folder / f"seed{seed}", episodes, args.quick) for seed in seeds
    ]
    success, errors_m = teacher(f"quad/{args.task}", episodes)
    report(f"{name}/pid", [success], [errors_m])
    for who in WHO:
        found = [result[who]["policy"] for result in results]
        report(f"{name}/{who}", [each["success"] for each in found], [each["errors_m"] for each in found])
    emit(f"{name}/cpu_s", round(fmean(result["cpu_s"] for result in results), 1), "cpu-s", seeds=len(seeds))
    loop = results[0]["loop"]
    emit(f"{name}/deadlines_missed", loop["missed"], "ticks", ticks=loop["ticks"], rate_hz=loop["rate_hz"])


def run_seed(env: str, seed: int, home: Path, episodes: int, quick: bool) -> dict[str, Any]:
    """Run the entire chain by its verbs, and measure every policy on the same episodes."""
    done = home / "results.json"
    if done.exists():
        found: dict[str, Any] = json.loads(done.read_text())
        return found
    home.mkdir(parents=True, exist_ok=True)
    used = build(env, seed, home, quick)
    results: dict[str, Any] = {"cpu_s": used}
    for who, noise in WHO.items():
        folder, out = home / who.removesuffix("_zero_noise"), home / f"{who}.json"
        asked = {} if noise is None else {"noise": noise}
        verb(
            "evaluate",
            policy=folder,
            episodes=episodes,
            seed=FINAL_SEED,
            num_envs=64,
            num_workers=0,
            out=out,
            **asked,
        )
        results[who] = json.loads(out.read_text())
    verb("export", policy=home / "head", out=home / "bundle")
    verb("run", bundle=home / "bundle", episodes=2, out=home / "loop.json")
    results["loop"] = json.loads((home / "loop.json").read_text())
    done.write_text(json.dumps(results))
    return results


def build(env: str, seed: int, home: Path, quick: bool) -> float:
    """Demonstrations, base, residual and head; returns CPU seconds."""
    short = QUICK if quick else {}
    stages = {
        "collect": ("demos", {"env": env} | COLLECT),
        "train": ("base", {"data": home / "demos"} | TRAIN),
        "finetune": ("residual", {"base": home / "base", "demos": home / "demos"} | FINETUNE),
        "distill": ("head", {"teacher": home / "residual"} | DISTILL),
    }
    used = 0.0
    for name, (out, settings) in stages.items():
        if (mark := home / f"{out}.cpu_s").exists():  # finished before an interruption
            used += float(mark.read_text())
            continue
        start_s = cpu_seconds()
        again = {} if name == "collect" else {"overwrite": True}
        verb(name, out=home / out, seed=seed, **settings | short.get(name, {}) | again)
        mark.write_text(str(cpu_seconds() - start_s))
        used += float(mark.read_text())
    return used


def teacher(name: str, episodes: int) -> tuple[list[bool], list[float | None]]:
    """Expert without noise on the episodes of the table: (success, error [m] of those that stayed)."""
    env = make_env(name, episodes)
    driver = ExpertDemonstrator(make_expert(name, env=env), episodes)
    seeds = eval_seeds(FINAL_SEED, episodes)
    obs = env.reset(chain(seeds, count()))
    driver.start(range(episodes), seeds, obs)
    success: list[bool] = [False] * episodes
    errors_m: list[float | None] = [None] * episodes
    running = torch.ones(episodes, dtype=torch.bool)
    while running.any():
        obs, _, _, _, info = env.step(driver.act())
        driver.observe(obs)
        for lane in torch.nonzero(info["final_mask"] & running).flatten().tolist():
            success[lane] = bool(info["success"][lane])
            error_m = float(info["error_m"][lane]) if "error_m" in info else float("inf")
            errors_m[lane] = error_m if error_m < float("inf") else None
        ended = torch.nonzero(info["final_mask"]).flatten().tolist()
        running &= ~info["final_mask"]
        if ended:
            driver.start(ended, info["next_seed"][ended].tolist(), obs)
    return success, errors_m


def report(name: str, success: list[list[bool]], errors_m: list[list[float | None] | None]) -> None:
    """Result over all seeds, with every seed."""
    rate = SuccessRate.of([one for seed in success for one in seed])
    low, high = rate.wilson()
    interval = [round(low, 3), round(high, 3)]
    per_seed = [sum(seed) for seed in success]
    emit(
        f"{name}/success",
        round(rate.rate, 4),
        "fraction",
        k=rate.k,
        n=rate.n,
        wilson95=interval,
        per_seed=per_seed,
    )
    means = [[error for error in seed or () if error is not None] for seed in errors_m]
    if known := [error for seed in means for error in seed]:
        emit(f"{name}/error_m", round(fmean(known), 4), "m", stayed=len(known), n=rate.n,
             per_seed=[round(fmean(seed), 4) if seed else None for seed in means])  # fmt: skip


if __name__ == "__main__":
    main()
