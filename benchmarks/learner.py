"""SAC and TD3 compared with Stable-Baselines3 in the same run.

    python benchmarks/learner.py                                   # gradient steps per CPU-second, as a ratio
    python benchmarks/learner.py --returns --seeds 3               # and returns after 100,000 steps
    python benchmarks/learner.py --methods bro --returns           # methods with networks of their own

The returns of finished trainings are kept in --folder: the same command continues where it was stopped.

Both learn on one thread, with networks of equal sizes and SB3's default settings (method=sac and method=td3
have the same). `--methods` measures other methods, with all values of their files, and nothing else. A
gradient step is a batch from the replay, both losses and both optimisers; the two take
turns, so that a busy machine slows them alike. Ours come in blocks of 4, those of one control step with the
default num_envs=4; SB3's in blocks of 48. `--compiled` adds torch.compile, which takes minutes.

Names: learner/<sac|td3>/<256x256|64x64>/updates_ratio_vs_sb3 (hidden layers; batch 256. Matrix products take
most of the time of 256x256, overhead that of 64x64) and .../bfloat16_updates_ratio_vs_sb3 (with
method.learner.precision=bfloat16, against the faster one of SB3 with and without such products),
learner/<method>/<updates_per_cpu_s|bfloat16_ratio|compiled_ratio> for every method of METHODS with layers of
256 and the same batch, learner/<method>/updates_per_cpu_s and learner/<method>/<env>/return for `--methods`,
learner/adam/flat_ratio_vs_<foreach|fused>, learner/<sac|td3>/<env>/return and
learner/<sac|td3>/<env>/sb3_return, with the p of a permutation test.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from common import commit, emit, own_folder, parser, verb
from learner_costs import emit_adam, emit_compiled, emit_costs, emit_updates

from robo_rl.apps.cli.config import load_config
from robo_rl.apps.tuning.compose import build_session
from robo_rl.apps.tuning.warm_start import empty_policy
from robo_rl.conf.finetune import FinetuneVerb
from robo_rl.core.files.durable import read_json, write_json
from robo_rl.core.process_signals import exit_with_parent
from robo_rl.core.seeding import EpisodeSeeds
from robo_rl.eval.stats import mean_over_seeds
from sim.registry import make_env

ENVS = ("Hopper-v5", "HalfCheetah-v5")
LEARNERS = ("sac", "td3")
METHODS = (*LEARNERS, "rlpd", "fast_td3", "fast_sac")  # whose updates are taken apart
WARM_UP = 1000  # environment steps before the first gradient step
EVAL_EPISODES = 10
LANES = 4  # updates of one control step
UPDATES = 48  # gradient steps that are timed together


def main() -> None:
    options = parser(__doc__.splitlines()[0])
    options.add_argument(
        "--returns", action="store_true", help="train both for --env-steps and compare returns"
    )
    options.add_argument("--env-steps", type=int, default=100_000, help="environment steps of each training")
    options.add_argument("--seeds", type=int, default=3, help="trainings per learner")
    options.add_argument("--first-seed", type=int, default=0, help="seed of the first of these trainings")
    options.add_argument("--width", type=int, default=256, help="hidden units per layer, in --returns")
    options.add_argument("--envs", default=",".join(ENVS), help="Gymnasium ids, separated by commas")
    options.add_argument("--learners", default=",".join(LEARNERS), help="sac, td3 or both")
    options.add_argument("--jobs", type=int, default=2, help="number of parallel trainings")
    options.add_argument("--folder", type=Path, default=Path("runs/learner"), help="returns are kept here")
    options.add_argument(
        "--methods", default="", help="measure these methods with their own settings, and nothing else"
    )
    options.add_argument("--device", default="auto", help="device of the learning in --methods --returns")
    options.add_argument(
        "--compiled", action="store_true", help="also compile the updates with torch.compile"
    )
    args = options.parse_args()
    torch.set_num_threads(1)
    if args.quick:
        args.env_steps, args.seeds = 2000, 1
    args.folder = own_folder(args.folder)
    if args.methods:
        of_methods(args)
        return
    learners = args.learners.split(",")
    for name in learners:
        for width, label in ((256, f"{name}/256x256"), (64, f"{name}/64x64")):
            ratio(name, width, label, rounds=4 if args.quick else 20)
    emit_adam(rounds=10)
    for name in METHODS:
        plain, half = (
            our_updates(name, 256, f"learner.precision={kind}") for kind in ("float32", "bfloat16")
        )
        emit_costs(name, plain, half, rounds=2 if args.quick else 10)
        if args.compiled:
            emit_compiled(name, plain, our_updates(name, 256, compiled=True), rounds=2 if args.quick else 10)
    if args.returns:
        for env in args.envs.split(","):
            for name in learners:
                returns(args, name, env, [args.width, args.width])


def of_methods(args: argparse.Namespace) -> None:
    """Updates per CPU-second of --methods with their own networks, and with --returns their returns."""
    for name in args.methods.split(","):
        emit_updates(name, our_updates(name, None), rounds=1 if args.quick else 5)
        for env in args.envs.split(",") if args.returns else ():
            if args.quick:
                args.env_steps = WARM_UP + 20
            returns(args, name, env, None)


def ratio(name: str, width: int, label: str, rounds: int) -> None:
    """Gradient steps per CPU-second, as a ratio to SB3's; those in bfloat16 to the faster one of SB3's.

    SB3 in bfloat16 is torch's setting for the inputs of matrix products, which ours has where there is no
    machine code.
    """
    updates = {
        "ours": our_updates(name, width),
        "sb3": sb3_updates(name, width),
        "ours_bfloat16": our_updates(name, width, "learner.precision=bfloat16"),
    }
    updates["sb3_bfloat16"] = rounding_inputs(updates["sb3"])
    best = dict.fromkeys(updates, float("inf"))
    for _ in range(rounds + 1):
        for who, update in updates.items():
            start_s = time.process_time()
            update(UPDATES)
            best[who] = min(best[who], (time.process_time() - start_s) / UPDATES)
    per_s = {f"{who}_per_cpu_s": round(1.0 / each_s, 1) for who, each_s in best.items()}
    about: dict[str, Any] = {"hidden": [width, width], "batch": 256, **per_s}
    ratios = {
        "updates_ratio_vs_sb3": best["sb3"] / best["ours"],
        "bfloat16_updates_ratio_vs_sb3": min(best["sb3"], best["sb3_bfloat16"]) / best["ours_bfloat16"],
    }
    for key, value in ratios.items():
        emit(f"learner/{label}/{key}", round(value, 3), "ratio", **about)


def rounding_inputs(update: Callable[[int], None]) -> Callable[[int], None]:
    """The updates with torch's matrix products of inputs that are rounded to bfloat16."""

    def rounded(times: int) -> None:
        torch.set_float32_matmul_precision("medium")
        try:
            update(times)
        finally:
            torch.set_float32_matmul_precision("highest")

    return rounded


def our_updates(
    name: str, width: int | None, *settings: str, compiled: bool = False
) -> Callable[[int], None]:
    """Updates of a method on Hopper, with two hidden layers of this width and batches of 256; None: its."""
    layers = f"[{width},{width}]"
    sizes = [f"learner.hidden={layers}", "learner.critic_hidden=null", "learner.batch=256"] if width else []
    overrides = [
        *sizes,
        "mix.demo=0",
        "mix.online=1",
        "replay_capacity=100000",
        f"base_steps={WARM_UP}",
        *settings,
    ]
    words = [f"method={name}", "out=.", "env=gym/Hopper-v5", *(f"method.{word}" for word in overrides)]
    config = load_config("finetune", words, FinetuneVerb)
    env = make_env("gym/Hopper-v5", 1)
    tuner: Any = build_session(
        config.method, empty_policy(env.spec, None, None), env, seed=0, demos=None
    ).tuner
    tuner.collector.reset(env.reset(EpisodeSeeds("benchmark")), [next(EpisodeSeeds("benchmark"))])
    while tuner.phase != "online":
        tuner.advance()
    learner, runner = tuner.learner, tuner.runner
    if compiled:
        learner.update_number = torch.compile(learner.update_number)

    def update(times: int) -> None:
        for done in range(0, times, LANES):
            runner.update(min(LANES, times - done))

    return update


def sb3_updates(name: str, width: int) -> Callable[[int], None]:
    model = sb3(name, "Hopper-v5", 0, policy_kwargs={"net_arch": [width, width]})
    model.learn(WARM_UP)
    return lambda times: model.train(times, 256)


def sb3(name: str, env: str, seed: int, **settings: Any) -> Any:
    """SB3's defaults, except for the number of initial random steps, which equals ours."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from stable_baselines3 import SAC, TD3
    torch.set_num_threads(1)
    kind = {"sac": SAC, "td3": TD3}[name]
    rest: dict[str, Any] = {"batch_size": 256, "learning_starts": WARM_UP, **settings}
    if name == "td3":
        import numpy as np
        from stable_baselines3.common.noise import NormalActionNoise

        dim = make_env(f"gym/{env}", 1).spec.action.dim
        rest |= {"learning_rate": 3e-4, "action_noise": NormalActionNoise(np.zeros(dim), 0.1 * np.ones(dim))}
    return kind("MlpPolicy", env, seed=seed, device="cpu", **rest)


@dataclass(frozen=True)
class Training:
    """One training of a library, whose mean return is kept in a file.

    hidden: layers; None: all values are the method's own. device: of our learning.
    """

    label: str  # return, or sb3_return
    name: str
    env: str
    env_steps: int
    seed: int
    hidden: list[int] | None
    device: str

    def file(self, folder: Path) -> Path:
        """File of the result; its name says all that it depends on but the commit."""
        layers = "own" if self.hidden is None else "x".join(map(str, self.hidden))
        parts = (self.name, self.env, self.env_steps, layers, self.device, self.label, f"seed{self.seed}")
        return folder / ("-".join(map(str, parts)) + ".json")

    def run(self, folder: Path) -> dict[str, Any]:
        """Mean return and the commit at which it was trained, from the file if there is one."""
        file = self.file(folder)
        if not file.exists():
            train = our_return if self.label == "return" else sb3_return
            found = {"return": train(self), "commit": commit()}
            file.parent.mkdir(parents=True, exist_ok=True)
            write_json(file, found)
        result: dict[str, Any] = read_json(file)
        return result


def returns(args: argparse.Namespace, name: str, env: str, hidden: list[int] | None) -> None:
    """Mean deterministic return after --env-steps, for each seed; each training is reported as it ends.

    hidden: of both libraries; None: all values are the method's own, and SB3 is left out.
    """
    seeds = range(args.first_seed, args.first_seed + args.seeds)
    labels = ("return",) if hidden is None else ("sb3_return", "return")
    device = args.device if hidden is None else "auto"
    found: dict[str, dict[int, dict[str, Any]]] = {label: {} for label in labels}
    with ProcessPoolExecutor(args.jobs, initializer=exit_with_parent) as pool:
        jobs = {
            pool.submit(each.run, args.folder): each
            for seed in seeds
            for each in (Training(label, name, env, args.env_steps, seed, hidden, device) for label in labels)
        }
        for job in as_completed(jobs):
            label, seed = jobs[job].label, jobs[job].seed
            found[label][seed] = job.result()
            print(f"{name} {env} seed {seed}: {label} {found[label][seed]['return']:.1f}", file=sys.stderr)
    totals = {label: [round(of[seed]["return"], 1) for seed in seeds] for label, of in found.items()}
    for label, per_seed in totals.items():
        more: dict[str, Any] = {"trained_at": sorted({each["commit"] for each in found[label].values()})}
        if len(per_seed) > 1:
            mean = mean_over_seeds(per_seed)
            more |= {"t95": [mean.low, mean.high]}
        if label == "return" and "sb3_return" in totals and len(per_seed) > 1:
            more |= {"p_vs_sb3": p_of_difference(per_seed, totals["sb3_return"])}
        more |= {"env_steps": args.env_steps, "seeds": len(seeds), "first_seed": seeds[0], "hidden": hidden}
        emit(
            f"learner/{name}/{env}/{label}",
            round(fmean(per_seed), 1),
            "sum of rewards",
            per_seed=per_seed,
            **more,
        )


def p_of_difference(one: Sequence[float], other: Sequence[float]) -> float:
    """p of a difference of means at least as large in either direction, if labels were exchanged by chance.

    Of all exchanges, or of 200,000 random ones if there are more (with eleven seeds each).
    """
    from scipy.stats import permutation_test

    def difference(x: Any, y: Any, axis: int) -> Any:
        return x.mean(axis=axis) - y.mean(axis=axis)

    found = permutation_test((one, other), difference, vectorized=True, n_resamples=200_000, rng=0)
    return float(round(found.pvalue, 4))


def our_return(training: Training) -> float:
    """Mean return of our learner's policy."""
    # with values of its own a shorter run would end within the method's start
    own_start = training.hidden is None and training.env_steps > 10 * WARM_UP
    layers = f"method.learner.hidden={training.hidden}".replace(" ", "")
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        verb(
            "finetune",
            f"method={training.name}",
            f"env=gym/{training.env}",
            f"out={out}",
            f"seed={training.seed}",
            f"env_steps={training.env_steps}",
            f"device={training.device}",
            *([] if own_start else [f"method.base_steps={WARM_UP}"]),
            *([] if training.hidden is None else [layers]),
            "num_envs=1",
            "eval_every=0",
            f"final_episodes={EVAL_EPISODES}",
            f"eval_episodes={EVAL_EPISODES}",
            "checkpoint_every=1000000000",
        )
        totals = read_json(out / "results.json")["policy"]["returns"]
    return float(fmean(totals))


def sb3_return(training: Training) -> float:
    """Mean return of Stable-Baselines3's policy."""
    from stable_baselines3.common.evaluation import evaluate_policy

    model = sb3(training.name, training.env, training.seed, policy_kwargs={"net_arch": training.hidden})
    model.learn(training.env_steps)
    mean, _ = evaluate_policy(model, model.get_env(), n_eval_episodes=EVAL_EPISODES, deterministic=True)
    return float(mean)


if __name__ == "__main__":
    main()
