"""Learning inside the denoising of a base policy, beside steering, residual and auto on the same bases.

    python benchmarks/denoising.py --task peg-insert-side --method dppo,flow_sde,flow_noise
    python benchmarks/denoising.py --task arm-lift --method dppo,flow_sde,flow_noise,steering,residual,auto

Seeds, demonstrations and bases of peg-insert-side are those of benchmarks/finetune.py; with the same --folder
they are not made again. All policies of a seed are evaluated on the same 100 episodes, which are not used in
training. Names: denoising/<task>/<method>/success (mean over seeds; in `base` and `base_zero_noise` the bases
with noise and without, in `first_ratio_error` the largest |ratio - 1| of the first minibatch of any round),
.../env_steps, .../cpu_s (training, per seed), and denoising/first_ratio_error: the largest |ratio - 1| of
shuffled rows before the first update, over methods, on the base of the first seed.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported

from common import emit, into_log, own_folder, parser, verb

TASKS = {  # task -> (environment, demonstrations, settings of training on it)
    "peg-insert-side": ("metaworld/peg-insert-side-v3", 20, ("num_envs=16",)),
    "arm-lift": ("arm/lift", 6, ("num_envs=32", "method.ppo.rollout=200")),
}
INSIDE = ("dppo", "flow_sde", "flow_noise", "reinflow", "fpo", "awr", "recap", "grpo")
KEPT = ("seed", "base", "base_zero_noise", "first_ratio_error")  # of each seed, beside success and curve
FINAL_SEED = 1  # episodes of the table; evaluations during training use 0
DECISIONS = 64  # of the ratio check
RATIO_ERROR = "actor/first_ratio_error"  # of a round, in the logs of a run


@dataclass(frozen=True)
class Call:
    """One seed of one method on one task."""

    task: str
    method: str
    seed: int
    folder: Path
    options: tuple[str, ...]
    quick: bool

    @property
    def home(self) -> Path:
        return self.folder / f"{self.task}-{TASKS[self.task][1]}" / f"seed{self.seed}"

    @property
    def out(self) -> Path:
        return self.home / self.method


def main() -> None:
    options = parser(__doc__.splitlines()[0])
    options.add_argument("--task", choices=[*TASKS], default="arm-lift")
    options.add_argument("--method", default=",".join(INSIDE), help="methods, separated by commas")
    options.add_argument("--seeds", default="0,1,2", help="seeds, separated by commas")
    options.add_argument("--env-steps", type=int, help="environment steps; the method's own by default")
    options.add_argument("--set", default="", help="more settings of the methods inside the denoising")
    options.add_argument("--folder", type=Path, default=Path("runs/benchmark"), help="folder of the runs")
    args = options.parse_args()
    folder, seeds = own_folder(args.folder), [int(seed) for seed in args.seeds.split(",")]
    extra = tuple(args.set.split()) + (() if args.env_steps is None else (f"env_steps={args.env_steps}",))
    methods = args.method.split(",")
    if args.quick:
        seeds, methods = seeds[:1], [method for method in methods if method in INSIDE]
    for method in methods:
        calls = [Call(args.task, method, seed, folder, extra, args.quick) for seed in seeds]
        summarise(args.task, method, [run_seed(call) for call in calls], " ".join(extra))
    base = Call(args.task, "", seeds[0], folder, (), args.quick).home / "base"
    errors = {method: first_ratio_error(base, method) for method in INSIDE}
    emit("denoising/first_ratio_error", max(errors.values()), "ratio", by_method=errors)


def run_seed(call: Call) -> dict[str, Any]:
    """Demonstrations, base, training and measurement of one seed; existing ones are reused."""
    call.home.mkdir(parents=True, exist_ok=True)
    with into_log(call.home / f"denoising-{call.method}.log"):
        make_base(call)
        train(call)
        return measured(call)


def make_base(call: Call) -> None:
    env, episodes, _ = TASKS[call.task]
    data, base, seed = call.home / "demonstrations", call.home / "base", f"seed={call.seed}"
    if not (base / "policy").exists():
        verb("collect", f"env={env}", f"out={data}", f"episodes={episodes}", "noise=0.1", seed)
        short = ["steps=200"] if call.quick else []
        verb("train", f"data={data}", f"out={base}", seed, "overwrite=true", *short)


def train(call: Call) -> None:
    words = [f"base={call.home / 'base'}", f"out={call.out}", f"method={call.method}", f"seed={call.seed}"]
    words += [f"demos={call.home / 'demonstrations'}", "final_episodes=10"]
    if call.method in INSIDE:
        words += [] if call.quick else [*TASKS[call.task][2]]
        words += [*call.options, "checkpoint_every=20000", "eval_every=51200"]
    if call.quick:
        words += ["num_envs=8", "env_steps=640", "method.ppo.rollout=40", "eval_episodes=5"]
        words += ["method.ppo.minibatches=4"] if call.method in INSIDE else []
        words += ["max_episode_steps=40"]  # groups of episodes must fit into a rollout
    if not (call.out / "policy").exists():
        again = "resume=true" if (call.out / "checkpoints").exists() else "overwrite=true"
        verb("finetune", *words, again)


def measured(call: Call) -> dict[str, Any]:
    """Success of base and policy on the final episodes, and the cost of training."""
    from robo_rl.core.files.durable import read_json
    from robo_rl.runs.learning_curve import CURVE_FILE, LearningCurve
    from robo_rl.runs.metrics import read_metrics

    rates, base = {}, call.home / "base"
    measures = (("base", base, 1.0), ("base_zero_noise", base, 0.0), ("success", call.out, None))
    for name, policy, noise in measures:
        result = call.home / f"denoising-{call.method if name == 'success' else name}.eval.json"
        if not result.exists():
            words = [f"policy={policy}", f"episodes={10 if call.quick else 100}", f"seed={FINAL_SEED}"]
            words += [] if noise is None else [f"noise={noise}"]
            verb("evaluate", *words, f"out={result}", "num_workers=0", "num_envs=10")
        rates[name] = json.loads(result.read_text())["policy"]["rate"]["success"]
    note = read_json(call.out / "policy" / "policy.json")["train"]
    curve = LearningCurve.from_json(read_json(call.out / CURVE_FILE))
    logged = read_metrics(call.out / "metrics.jsonl")
    errors = [line[RATIO_ERROR] for line in logged if RATIO_ERROR in line]
    return rates | {
        "seed": call.seed,
        "first_ratio_error": max(errors, default=None),
        "env_steps": int(note["env_steps"]),
        "cpu_s": curve.train_cpu_s,
        "trained_at": note["commit"],
        "curve": [[step, rate.rate] for step, rate in zip(curve.env_steps, curve.rates, strict=True)],
    }


def summarise(task: str, method: str, rows: list[dict[str, Any]], settings: str) -> None:
    """One line per number, with every seed. settings: those that differ from the method's own."""
    name, per_seed = f"denoising/{task}/{method}", [row["success"] for row in rows]
    extra = {key: [row[key] for row in rows] for key in (*KEPT, "curve")}
    extra["trained_at"] = sorted({row["trained_at"] for row in rows})
    if settings and method in INSIDE:
        extra["settings"] = settings
    emit(f"{name}/success", fmean(per_seed), "fraction", per_seed=per_seed, **extra)
    for key, unit in (("env_steps", "env steps"), ("cpu_s", "cpu-s")):
        emit(f"{name}/{key}", fmean(row[key] for row in rows), unit, seeds=len(rows))


def first_ratio_error(base: Path, method: str) -> float:
    """Largest |ratio - 1| of shuffled rows under unchanged weights."""
    import torch

    from policies.base.generative import GenerativePolicy
    from policies.checkpoint import load_policy
    from robo_rl.apps.cli.config import load_config
    from robo_rl.apps.tuning.denoising import chain_head, tunable
    from robo_rl.conf.finetune import FinetuneVerb
    from robo_rl.core.seeding import generator
    from robo_rl.rl.on_policy.head import head_inputs
    from robo_rl.runs.loaded_policy import find_policy

    policy = load_policy(find_policy(str(base)))
    assert isinstance(policy, GenerativePolicy)
    config = load_config("finetune", [f"method={method}", "out=."], FinetuneVerb).method
    rng = generator("ratio", 0)
    draws = config.map.draws if config.map.kind == "draws" else 0
    tuned = tunable(policy, config.denoising.guidance, rng)
    head = chain_head(tuned, policy.encoder.dim, config.denoising, config.ppo.clip, rng, draws)
    features = torch.randn(DECISIONS, policy.encoder.dim, generator=rng)
    noise = torch.randn(DECISIONS, policy.chunk * policy.action_spec.dim, generator=rng)
    with torch.no_grad():
        u = head.act(features, noise, rng, explore=True)
        seen = head_inputs(head, features, torch.randn(DECISIONS, generator=rng), rng)
        rows = torch.arange(DECISIONS * head.terms)
        mixed = rows[torch.randperm(len(rows), generator=rng)]
        old, new = (
            torch.cat(
                [
                    head.evaluate(seen[part // head.terms], u[part // head.terms], part % head.terms).log_prob
                    for part in order.split(size)
                ]
            )
            for order, size in ((rows, len(rows)), (mixed, 7))
        )
    return float(((new - old[mixed]).exp() - 1.0).abs().max())


if __name__ == "__main__":
    main()
