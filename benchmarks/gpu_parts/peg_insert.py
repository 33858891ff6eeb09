"""Residual on arm/peg_insert in MuJoCo Warp: from a base with 40 to 60 % success to at least 95 %.

    python benchmarks/gpu.py --part peg_insert
    python benchmarks/gpu_parts/peg_insert.py --folder runs/peg    # keeps base and demonstrations there

The base is a flow policy from six demonstrations. `robo-rl finetune method=fast_residual` trains until
`--seconds` are over or all steps are made. Base and result are compared on the same new episodes.

gpu/peg_insert/base_success, /success: of these episodes, both from zero noise. /wall_s: training, without
evaluations, checkpoints and the start. /wall_s_to_95: training until the first of its evaluations that
reaches 0.95. /verb_s: the entire command. /build_s: first steps of the simulator, in which its kernels are
built or loaded. /env_steps, /updates: of training. Means over `--seeds` trainings. On the CPU the names begin
with gpu/peg_insert/cpu.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from timing import emit, facts, options, own_folder, verb

from policies.base.noise import EpisodeNoise
from policies.checkpoint import load_policy
from policies.executor import ChunkExecutor
from policies.registry import SavedPolicy
from robo_rl.core.files.durable import read_json
from robo_rl.core.seeding import EpisodeSeeds
from robo_rl.eval.rollout import EvalResult, compare, eval_seeds, evaluate
from robo_rl.runs.device import copied_to
from robo_rl.runs.metrics import read_metrics
from sim.registry import make_env
from sim.vec.on_device import copied_env

DEMONSTRATIONS = 6
AIM = 0.95
FRESH = 20  # seed of the episodes of the comparison, which no training has seen


@dataclass(frozen=True)
class Run:
    """One training. curve: wall time, environment steps and success at each evaluation."""

    result: EvalResult
    verb_s: float
    updates: float
    curve: list[tuple[float, int, float]]

    @property
    def wall_s(self) -> float:
        return self.curve[-1][0]

    @property
    def to_aim_s(self) -> float | None:
        """Wall time of training until the aim; None if it was not reached."""
        return next((wall_s for wall_s, _, rate in self.curve if rate >= AIM), None)


def main() -> None:
    args = options(__doc__, add_options)
    compiled = args.device == "cuda"  # there it takes no compiler
    args.env = args.env or f"arm/peg_insert:engine=mjwarp,compiled={compiled},device={args.device}".lower()
    small = args.device == "cpu" and args.quick
    worlds = args.worlds or (8 if small else 1024 if args.quick else 4096)
    episodes = 2 * worlds if small else args.episodes
    folder = args.folder or own_folder(Path("runs/gpu_peg_insert"))
    make_base(folder, 60 if small else 2000)
    build_s = first_steps(args.env, worlds)
    settings = sizes(worlds, small, args.steps) | dict(word.split("=", 1) for word in args.set)
    lanes = min(worlds, episodes)
    runs = []
    for seed in range(args.seed, args.seed + args.seeds):
        start_s = time.monotonic()
        train(folder, args, worlds, seed, settings)
        verb_s = time.monotonic() - start_s
        tuned = load_policy(folder / "tuned" / "policy")
        runs.append(run_of(folder / "tuned", measure(tuned, args, lanes, episodes), verb_s))
        print(f"seed {seed}: {runs[-1].result}, {runs[-1].wall_s} s", file=sys.stderr, flush=True)
    base = load_policy(folder / "base" / "policy")
    before = measure(base, args, lanes, episodes)
    own = measure(base, args, lanes, episodes, noise=1.0)
    report(args, worlds, before, own, runs, build_s)


def add_options(made: argparse.ArgumentParser) -> None:
    made.add_argument("--folder", type=Path, help="folder of base, demonstrations and result")
    made.add_argument("--env", help="environment; default: arm/peg_insert in MuJoCo Warp, on the device")
    made.add_argument("--worlds", type=int, help="parallel environments")
    made.add_argument("--steps", type=int, default=20_000, help="steps of all environments, if time allows")
    made.add_argument("--episodes", type=int, default=1000, help="episodes of the comparison")
    made.add_argument("--seconds", type=float, default=180.0, help="longest wall time of training [s]")
    made.add_argument("--seed", type=int, default=0, help="seed of the first training")
    made.add_argument("--seeds", type=int, default=1, help="trainings")
    made.add_argument("--set", nargs="*", default=[], help="further settings of the verb, key=value")


def make_base(folder: Path, steps: int) -> None:
    """Demonstrations and base policy, where they are not there yet."""
    demos, base = folder / "demos", folder / "base"
    if not demos.exists():
        verb(
            "collect",
            env="arm/peg_insert",
            episodes=DEMONSTRATIONS,
            noise=0.3,
            num_envs=4,
            num_workers=0,
            out=demos,
        )
    if not (base / "policy").exists():
        verb("train", data=demos, out=base, steps=steps, device="cpu", overwrite=True)


def first_steps(name: str, worlds: int) -> float:
    """Seconds until the simulator has made two steps."""
    start_s = time.monotonic()
    env = make_env(name, worlds)
    obs = env.reset(EpisodeSeeds("build"))
    for _ in range(2):
        env.step(torch.zeros(len(obs["state"]), env.spec.action.dim))
    env.close()
    return time.monotonic() - start_s


def sizes(worlds: int, small: bool, steps: int) -> dict[str, Any]:
    """Settings that depend on the number of environments."""
    base, evals = (70, 4) if small else (100, 120)
    return {
        "env_steps": (180 if small else steps) * worlds,
        "eval_every": 0 if small else 500 * worlds,
        "eval_episodes": evals,
        "final_episodes": evals,
        "method.base_steps": base * worlds,
        "method.replay_capacity": 256 * worlds,
    } | ({"method.learner.batch": 32, "method.burn_in": 20} if small else {})


def train(folder: Path, args: argparse.Namespace, worlds: int, seed: int, settings: dict[str, Any]) -> None:
    """`robo-rl finetune`; `folder`/tuned is its run."""
    verb(
        "finetune",
        "method=fast_residual",
        **settings,
        base=folder / "base",
        demos=folder / "demos",
        out=folder / "tuned",
        env=args.env,
        num_envs=worlds,
        device=args.device,
        max_wall_s=args.seconds,
        seed=seed,
        checkpoint_every=10**12,
        overwrite=True,
    )


def run_of(folder: Path, result: EvalResult, verb_s: float) -> Run:
    """Figures of the training in `folder`."""
    curve = read_json(folder / "curve.json")
    updates = [line.get("train/updates", 0.0) for line in read_metrics(folder / "metrics.jsonl")]
    rates = [k / n for k, n in curve["rates"]]
    points = zip((round(each, 1) for each in curve["wall_s"]), curve["env_steps"], rates, strict=True)
    return Run(result, round(verb_s, 1), max(updates), list(points))


def report(
    args: argparse.Namespace,
    worlds: int,
    before: EvalResult,
    own: EvalResult,
    runs: list[Run],
    build_s: float,
) -> None:
    """Print all lines."""
    shared = {"worlds": worlds, "seeds": len(runs), **facts(args.device)}
    name = f"gpu/peg_insert{'/cpu' if args.device == 'cpu' else ''}"
    emit(f"{name}/base_success", before.rate.rate, "fraction of episodes", **before.rate.to_json(),
         with_own_noise=own.rate.rate, **shared)  # fmt: skip
    rates = [run.result.rate.rate for run in runs]
    tests = [compare(before, run.result).p_value for run in runs]
    emit(f"{name}/success", round(fmean(rates), 4), "fraction of episodes", per_seed=rates, min=min(rates),
         episodes=before.rate.n, p_vs_base=tests, aim=AIM, **shared)  # fmt: skip
    walls = [run.wall_s for run in runs]
    emit(f"{name}/wall_s", round(fmean(walls), 1), "s", per_seed=walls, curves=[run.curve for run in runs],
         aim=300, **shared)  # fmt: skip
    if reached := [run.to_aim_s for run in runs if run.to_aim_s is not None]:
        emit(f"{name}/wall_s_to_95", round(fmean(reached), 1), "s", per_seed=reached, **shared)
    emit(f"{name}/verb_s", round(fmean(run.verb_s for run in runs), 1), "s", **shared)
    emit(f"{name}/build_s", round(build_s, 1), "s", **shared)
    steps = round(fmean(run.curve[-1][1] for run in runs))
    emit(f"{name}/env_steps", steps, "env steps", steps_of_all=steps // worlds, **shared)
    emit(f"{name}/updates", round(fmean(run.updates for run in runs)), "updates", **shared)


def measure(
    policy: SavedPolicy, args: argparse.Namespace, lanes: int, episodes: int, noise: float = 0.0
) -> EvalResult:
    """Success of a policy on the device, on new episodes."""
    device = torch.device(args.device)
    env = make_env(args.env, lanes)
    acting = copied_to(policy, device)
    source = EpisodeNoise((policy.chunk, policy.action_spec.dim), noise, device=device)
    executor = partial(ChunkExecutor, device=device, masked=False)
    found = evaluate(copied_env(env, device), acting, executor, source, eval_seeds(FRESH, episodes))
    env.close()
    return found


if __name__ == "__main__":
    main()
