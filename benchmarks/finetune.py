"""Success of fine-tuning methods over seeds, each with its own demonstrations, base policy and training.

    python benchmarks/finetune.py --task peg-insert-side --method steering --seeds 5
    python benchmarks/finetune.py --task assembly --method residual --seeds 5 --env-steps 24000
    python benchmarks/finetune.py --task assembly --method residual --seeds 5 --base-seed 0

With --base-seed all seeds share the demonstrations and the base of that seed, so that only the training
differs; the names then end in /one_base. With --num-envs the names end in /<n>_envs: --method auto
--num-envs 4 measures the stages of `auto`. With --no-demos the method gets no demonstrations, from the same
bases, and the names end in /no_demos. With --set method.progress_weight=0.5, or other settings of
`robo-rl finetune`, they end in these: /progress_weight=0.5.

All policies of a seed are evaluated on the same 100 episodes, which are not used in training. Names:
finetune/<task>/<method>/success (mean over seeds, and as `iqm` that of their middle half), .../worst_seed,
.../env_steps_to_95 (a seed that never reaches it counts with all its steps, and the line says lower_bound),
.../cpu_s (training, per seed), .../selection_share (of env_steps, those that probed or chose a policy),
.../worst_drop_points (largest fall below the base at any evaluation in training; `auto` and `residual_lanes`
have none, and so no such line, unless the latter gets --set method.compare_share=0 eval_every=5000), and
.../base/success, .../base_zero_noise/success of the bases that these seeds started from.
"""

from __future__ import annotations

import json
import os
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported here and in the workers

from common import emit, into_log, own_folder, parser, verb

from robo_rl.core.process_signals import exit_with_parent

METAWORLD = {"peg-insert-side": 20, "assembly": 5, "pick-place": 6, "hand-insert": 12, "push": 6}
DEMOS = METAWORLD | {"navigate": 40}
ENVS = {"navigate": "mobile/navigate"}  # of the tasks that are none of MetaWorld's
EXPERT_NOISE = 0.1
FINAL_SEED = 1  # episodes of the table; evaluations during training use 0, choices of `auto` use 2


@dataclass(frozen=True)
class SeedResult:
    """Results of one seed, all on the same final episodes."""

    seed: int
    base: float
    base_zero_noise: float
    success: float
    episodes: int
    env_steps_to_95: int | None  # first evaluation in training at or above 95 %
    env_steps: int
    cpu_s: float
    worst_drop: float | None  # largest fall of an evaluation in training below the first; none: no other
    selection_steps: int | None = None  # those that probed or chose a policy; older files have none
    counts_all: bool = False  # env_steps contain selection_steps; older files have them beside env_steps
    decided_by: tuple[str, ...] = ()  # sentences of the run on what chose its policy

    @property
    def all_steps(self) -> int:
        """Environment steps of training and selection."""
        return self.env_steps + (0 if self.counts_all else self.selection_steps or 0)


def main() -> None:
    options = parser(__doc__.splitlines()[0])
    options.add_argument(
        "--task", choices=[*DEMOS, "all"], default="peg-insert-side", help="all: those of MetaWorld"
    )
    options.add_argument(
        "--method", default="steering", help="methods that improve a base, separated by commas"
    )
    options.add_argument("--seeds", type=int, default=3, help="number of seeds, from 0")
    options.add_argument("--base-seed", type=int, help="seed of one base shared by all seeds")
    options.add_argument("--env-steps", type=int, help="environment steps; the method's own by default")
    options.add_argument("--num-envs", type=int, help="environments; the method's own by default")
    options.add_argument("--set", nargs="*", default=[], help="settings of robo-rl finetune, key=value")
    options.add_argument("--no-demos", action="store_true", help="give the method no demonstrations")
    options.add_argument(
        "--folder",
        type=Path,
        default=Path("runs/benchmark"),
        help="folder of the runs; finished ones are kept",
    )
    options.add_argument("--jobs", type=int, default=2, help="number of parallel seeds")
    args = options.parse_args()
    seeds, folder = 1 if args.quick else args.seeds, own_folder(args.folder)
    for task in METAWORLD if args.task == "all" else [args.task]:
        for method in args.method.split(","):
            given = (args.base_seed, folder, args.env_steps, args.quick, DEMOS[task], args.num_envs)
            more = (tuple(args.set), args.no_demos)
            calls = [Call(task, method, seed, *given, *more) for seed in range(seeds)]
            if args.base_seed is not None:
                make_base(calls[0])  # once, before several processes would do it
            with ProcessPoolExecutor(min(args.jobs, seeds), initializer=exit_with_parent) as pool:
                summarise(calls, list(pool.map(run_seed, calls)))


@dataclass(frozen=True)
class Call:
    """One seed of one method on one task."""

    task: str
    method: str
    seed: int
    base_seed: int | None  # seed of demonstrations and base; none: the same as `seed`
    folder: Path
    env_steps: int | None
    quick: bool
    demos: int  # demonstrations of the base
    num_envs: int | None = None  # none: the method's own
    settings: tuple[str, ...] = ()  # of the verb, key=value
    no_demos: bool = False  # the base has learned from demonstrations, and the method gets none

    @property
    def task_folder(self) -> Path:
        return self.folder / f"{self.task}-{self.demos}"

    @property
    def base_folder(self) -> Path:
        return self.task_folder / f"seed{self.seed if self.base_seed is None else self.base_seed}"

    @property
    def home(self) -> Path:
        return self.base_folder if self.base_seed is None else self.base_folder / f"one_base-{self.seed}"

    @property
    def label(self) -> str:
        lanes = "" if self.num_envs is None else f"-{self.num_envs}-envs"
        without = "-no-demos" if self.no_demos else ""
        name = f"{self.method}{lanes}{without}{self.given.replace('/', '-')}"
        return name if self.env_steps is None else f"{name}-{self.env_steps}"

    @property
    def given(self) -> str:
        """The settings as the end of a name; empty without any."""
        return "".join(f"/{word.removeprefix('method.')}" for word in self.settings)

    @property
    def suffix(self) -> str:
        lanes = "" if self.num_envs is None else f"/{self.num_envs}_envs"
        shown = f"{self.given}{lanes}{'/no_demos' if self.no_demos else ''}"
        return shown if self.base_seed is None else f"{shown}/one_base"


def env_of(task: str) -> str:
    """Name of the environment of a task."""
    return ENVS.get(task, f"metaworld/{task}-v3")


def run_seed(call: Call) -> SeedResult:
    """Demonstrations, base, method and measurement of one seed; existing results are reused."""
    done = call.home / f"{call.label}.json"
    if not done.exists():
        call.home.mkdir(parents=True, exist_ok=True)
        with into_log(call.home / f"{call.label}.log"):
            make_base(call)
            result = _run(call)
        done.write_text(json.dumps(asdict(result)))
    return SeedResult(**json.loads(done.read_text()))


def make_base(call: Call) -> None:
    """Demonstrations and base policy; existing ones are reused."""
    data, base = call.base_folder / "demonstrations", call.base_folder / "base"
    if (base / "policy").exists():
        return
    seed, quick = f"seed={call.base_folder.name.removeprefix('seed')}", ["steps=200"] if call.quick else []
    env, noise = f"env={env_of(call.task)}", f"noise={EXPERT_NOISE}"
    verb("collect", env, f"out={data}", f"episodes={call.demos}", noise, seed)
    verb("train", f"data={data}", f"out={base}", seed, "overwrite=true", *quick)


def _run(call: Call) -> SeedResult:
    from robo_rl.core.files.durable import read_json
    from robo_rl.runs.learning_curve import CURVE_FILE, LearningCurve

    method, quick, home, label = call.method, call.quick, call.home, call.label
    data, base, out = call.base_folder / "demonstrations", call.base_folder / "base", home / label
    episodes = 10 if quick else 100
    steps = 1500 if quick else call.env_steps
    if not (out / "policy").exists():
        verb(
            "finetune",
            f"base={base}",
            f"out={out}",
            f"method={method}",
            *([] if call.no_demos else [f"demos={data}"]),
            f"seed={call.seed}",
            f"eval_seed={FINAL_SEED - 1}",
            "final_episodes=10",
            *((f"num_envs={call.num_envs or 4}",) if quick or call.num_envs else ()),
            *([] if steps is None else [f"env_steps={steps}"]),
            *(
                ["method.base_steps=1000", "method.burn_in=300"]
                if quick and method not in ("auto", "resip")
                else []
            ),
            *call.settings,
            "resume=true" if (out / "checkpoints").exists() else "overwrite=true",
        )
    rates = {}
    for name, policy, noise in (("base", base, 1.0), ("zero", base, 0.0), ("tuned", out, None)):
        result = home / f"{label}-{name}.eval.json"
        verb(
            "evaluate", f"policy={policy}", f"episodes={episodes}", f"seed={FINAL_SEED}", f"out={result}",
            "num_workers=0", "num_envs=10", *([] if noise is None else [f"noise={noise}"]),
        )  # fmt: skip
        rates[name] = json.loads(result.read_text())["policy"]["rate"]["success"]
    curve = LearningCurve.from_json(read_json(out / CURVE_FILE))
    return SeedResult(
        seed=call.seed,
        base=rates["base"],
        base_zero_noise=rates["zero"],
        success=rates["tuned"],
        episodes=episodes,
        env_steps_to_95=next(
            (s for s, r in zip(curve.env_steps, curve.rates, strict=True) if r.rate >= 0.95), None
        ),
        env_steps=int(json.loads((out / "policy" / "policy.json").read_text())["train"]["env_steps"]),
        selection_steps=curve.selection_steps,
        counts_all=True,
        decided_by=tuple(read_json(out / "results.json").get("decided_by", ())),
        cpu_s=curve.train_cpu_s,
        worst_drop=largest_fall([rate.rate for rate in curve.rates]),
    )


def largest_fall(rates: list[float]) -> float | None:
    """Largest fall below the first of these rates, at least 0; None without a second one."""
    return max(0.0, *(rates[0] - rate for rate in rates[1:])) if len(rates) > 1 else None


def summarise(calls: list[Call], results: list[SeedResult]) -> None:
    """Mean with Student's interval, interquartile mean with its bootstrap interval, and the worst seed.

    trained_at: commits of the trainings.
    """
    import numpy as np

    from robo_rl.eval.stats import SuccessRate, interquartile_mean, rate_over_seeds

    task, suffix = calls[0].task, calls[0].suffix
    name, success = f"finetune/{task}/{calls[0].method}", [result.success for result in results]
    notes = [json.loads((call.home / call.label / "run.json").read_text()) for call in calls]
    extra: dict[str, Any] = {"seeds": len(results), "episodes": results[0].episodes, "per_seed": success}
    extra["trained_at"] = sorted({note["commit"] for note in notes})
    if len(results) > 1:
        counts = [SuccessRate(round(each.success * each.episodes), each.episodes) for each in results]
        interval, middle = rate_over_seeds(counts), interquartile_mean(np.array([success]))
        extra["t95"] = [interval.low, interval.high]
        extra["iqm"], extra["iqm_bootstrap95"] = middle.value, [middle.low, middle.high]
    emit(f"{name}/success{suffix}", fmean(success), "fraction", **extra, env_steps=results[0].all_steps)
    counted = [
        result.selection_steps / result.all_steps for result in results if result.selection_steps is not None
    ]
    if len(counted) == len(results):
        emit(f"{name}/selection_share{suffix}", fmean(counted), "fraction of all steps", per_seed=counted)
    emit(f"{name}/worst_seed{suffix}", min(success), "fraction", seeds=len(results))
    reached = [result.env_steps_to_95 for result in results]
    if any(steps is not None for steps in reached):
        known = [
            result.all_steps if steps is None else steps
            for steps, result in zip(reached, results, strict=True)
        ]
        emit(
            f"{name}/env_steps_to_95{suffix}",
            fmean(known),
            "env steps",
            reached_by=sum(steps is not None for steps in reached),
            seeds=len(results),
            lower_bound=None in reached,
        )
    emit(f"{name}/cpu_s{suffix}", fmean(result.cpu_s for result in results), "cpu-s", seeds=len(results))
    drops = [result.worst_drop for result in results if result.worst_drop is not None]
    if len(drops) == len(results):
        per_seed = [100 * drop for drop in drops]
        emit(f"{name}/worst_drop_points{suffix}", max(per_seed), "points", per_seed=per_seed)
    # Named after the method: other methods may have been run on other seeds, and so on other bases.
    for what, rates in (
        ("base", [r.base for r in results]),
        ("base_zero_noise", [r.base_zero_noise for r in results]),
    ):
        emit(f"{name}/{what}/success{suffix}", fmean(rates), "fraction", per_seed=rates)


if __name__ == "__main__":
    main()
