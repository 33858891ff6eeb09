"""Fine-tuning on all tasks of MetaWorld, by one recipe that names no task.

    python benchmarks/suite.py --folder runs/suite --seeds 2    # hours; the same command continues it
    python benchmarks/suite.py --folder runs/suite --tasks push,reach
    python benchmarks/suite.py --folder runs/suite --report     # what is finished, without running anything

Each seed of a task collects 20 demonstrations of the scripted expert with noise 0.1, trains a base policy on
them, and fine-tunes it by `auto` within 50,000 environment steps, those included that chose a policy. Base
and result are evaluated on the same 100 episodes, which nothing else uses.

Names: suite/mt50/<task>/base and /end (success, mean over seeds; the base with its noise, and as
`zero_noise` without), /env_steps, /cpu_s; suite/mt50/<task>/left_out for a task whose expert gives no
demonstrations, with the reason. Without --tasks also suite/mt50/median and /mean of the ends, /worst, and
/tasks_below_base: tasks whose end is more than 2 points below the better of both bases.
"""

from __future__ import annotations

import json
import os
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import fmean, median

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported here and in the workers

from common import emit, own_folder, parser
from finetune import Call, SeedResult, run_seed
from tqdm import tqdm

from robo_rl.core.process_signals import exit_with_parent
from sim.registry import list_envs

DEMONSTRATIONS, ENV_STEPS = 20, 50_000
DEFECT = "this is an error in robo-rl itself"  # how the command line begins its report of one
INTERRUPTED = "exit code 130"  # end of the message of a verb that a signal stopped
BELOW = 0.02  # more than this below the base counts as a loss


def main() -> None:
    options = parser(__doc__.splitlines()[0])
    options.add_argument("--tasks", help="tasks without the ending -v3, separated by commas; default: all")
    options.add_argument("--method", default="auto", help="method of fine-tuning")
    options.add_argument("--seeds", type=int, default=2, help="number of seeds, from 0")
    options.add_argument("--env-steps", type=int, default=ENV_STEPS, help="environment steps of fine-tuning")
    options.add_argument("--folder", type=Path, default=Path("runs/suite"), help="folder of the runs")
    options.add_argument("--jobs", type=int, default=2, help="runs in parallel")
    options.add_argument("--report", action="store_true", help="print finished runs only")
    args = options.parse_args()
    folder, names = own_folder(args.folder), args.tasks.split(",") if args.tasks else all_tasks()
    if args.quick:
        names, args.seeds = names[:1], 1
    calls = [
        Call(task, args.method, seed, None, folder, args.env_steps, args.quick, DEMONSTRATIONS)
        for seed in range(args.seeds)  # one seed of every task first
        for task in names
    ]
    broken: list[Path] = []
    if not args.report:
        with ProcessPoolExecutor(args.jobs, initializer=exit_with_parent) as pool:
            runs = tqdm(pool.map(attempt, calls), "suite", len(calls), unit="run")
            broken = [log for log in runs if log is not None]
    report(names, calls, of_all=args.tasks is None)
    if broken:
        logs = ", ".join(str(log) for log in broken)
        raise SystemExit(
            f"{len(broken)} runs ended by an error of robo-rl itself; repeat the command. {logs}"
        )


def all_tasks() -> list[str]:
    """All tasks of MetaWorld, without the ending -v3."""
    found = [name.partition("/")[2] for name in list_envs() if name.startswith("metaworld/")]
    return sorted(name.removesuffix("-v3") for name in found if name.endswith("-v3"))


def attempt(call: Call) -> Path | None:
    """Run one seed of one task. A verb that refuses ends it, and its reason is kept beside it.

    Returns the log of a run that an error of the program or a signal ended: that says nothing about the task.
    """
    if reason_file(call).exists():
        return None
    log = call.home / f"{call.label}.log"
    try:
        run_seed(call)
    except SystemExit as stopped:
        lines = log.read_text(errors="replace").replace("\r", "\n").split("\n")
        said = [line for line in lines if line.startswith("robo-rl: ")]
        reason = said[-1].removeprefix("robo-rl: ") if said else str(stopped)
        if reason.startswith(DEFECT) or str(stopped).endswith(INTERRUPTED):
            return log
        reason_file(call).write_text(reason)
    return None


def reason_file(call: Call) -> Path:
    return call.home / f"{call.label}.left_out.txt"


def report(names: list[str], calls: list[Call], *, of_all: bool) -> None:
    """Print one group of lines for each finished task. of_all: also those over all tasks together."""
    ends, below = [], []
    for task in names:
        mine = [call for call in calls if call.task == task]
        if reasons := [reason_file(call).read_text() for call in mine if reason_file(call).exists()]:
            emit(f"suite/mt50/{task}/left_out", len(reasons), "seeds", why=reasons[0][:300])
        done = [found for call in mine if (found := result_of(call)) is not None]
        if not done:
            continue
        end, base, zero = (fmean(rates) for rates in rates_of(done))
        ends.append(end)
        if end < max(base, zero) - BELOW:
            below.append(task)
        about = {"seeds": len(done), "method": mine[0].method}
        emit(f"suite/mt50/{task}/base", base, "fraction", zero_noise=zero, **about)
        emit(f"suite/mt50/{task}/end", end, "fraction", per_seed=[each.success for each in done], **about)
        counted = [each.selection_steps or 0 for each in done]
        emit(f"suite/mt50/{task}/env_steps", fmean(each.all_steps for each in done), "env steps",
             selection_steps=fmean(counted), **about)  # fmt: skip
        emit(f"suite/mt50/{task}/cpu_s", fmean(each.cpu_s for each in done), "cpu-s", **about)
    if ends and of_all:
        emit("suite/mt50/median", median(ends), "fraction", tasks=len(ends))
        emit("suite/mt50/mean", fmean(ends), "fraction", tasks=len(ends))
        emit("suite/mt50/worst", min(ends), "fraction", tasks=len(ends))
        emit("suite/mt50/tasks_below_base", len(below), "tasks", tasks=len(ends), names=below)


def rates_of(done: list[SeedResult]) -> tuple[list[float], list[float], list[float]]:
    """(ends, bases with noise, bases without) of the seeds."""
    return (
        [each.success for each in done],
        [each.base for each in done],
        [each.base_zero_noise for each in done],
    )


def result_of(call: Call) -> SeedResult | None:
    """The result of a finished seed."""
    path = call.home / f"{call.label}.json"
    return SeedResult(**json.loads(path.read_text())) if path.exists() else None


if __name__ == "__main__":
    main()
