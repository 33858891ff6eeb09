"""`robo-rl compare a b`: learning curves with intervals in one plot, and a table of final success.

A run without evaluations during training, as of `method=auto`, shows its training episodes.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from statistics import mean

from robo_rl.conf.history import CompareConfig
from robo_rl.core.errors import CheckpointError, ConfigError
from robo_rl.core.text.counts import counted
from robo_rl.eval.plots import MOST_BANDS, Curve, write_learning_curves
from robo_rl.eval.stats import rate_over_seeds
from robo_rl.runs.history import PastRun, find_runs, no_run
from robo_rl.runs.learning_curve import EpisodesInTraining
from robo_rl.runs.metrics import METRICS_FILE

LEAST_RUNS = 3  # for an interval over runs
LONGEST = 32  # characters of a label in the plot
WINDOWS = 20  # of a curve of training episodes
NO_EVALUATION = "no evaluation during training"


def main(config: CompareConfig) -> int:
    """Plot the curves, and print the table."""
    if not config.runs:
        raise ConfigError("Found no run, expected one or more: robo-rl compare runs/a runs/b")
    groups = {name: read_group(name) for name in config.runs}
    width = max(map(len, groups))
    for name, runs in groups.items():
        print(f"{name:<{width}}  {final_success(runs)}")
    labels = dict(zip(groups, short_names(list(groups)), strict=True))
    curves = {name: curve_of(name, runs) or training_curve(name, runs) for name, runs in groups.items()}
    drawn = {name: replace(curve, label=labels[name]) for name, curve in curves.items() if curve is not None}
    caption = caption_of({name: (curve, sum(map(_evaluated, groups[name]))) for name, curve in drawn.items()})
    title = title_of([run for name in drawn for run in groups[name]])
    files = write_learning_curves(Path(config.out), list(drawn.values()), title=title, caption=caption)
    print(f"Curves: {', '.join(map(str, files))}")
    if training := [name for name, curve in drawn.items() if curve.training]:
        print(f"Dashed, of training episodes: {', '.join(training)} ({NO_EVALUATION})")
    missing = [
        run
        for name, runs in groups.items()
        if name not in drawn or not drawn[name].training
        for run in runs
        if not _evaluated(run)
    ]
    if missing:
        print(f"Not in the plot: {', '.join(map(without_curve, missing))}")
    return 0


def title_of(runs: list[PastRun]) -> str:
    """What is drawn, with the environment if it is the same in all runs that are known."""
    known = {run.env for run in runs if run.env}
    return f"Learning curves, {known.pop()}" if len(known) == 1 else "Learning curves"


def caption_of(drawn: Mapping[str, tuple[Curve, int]]) -> str:
    """Text below the plot on what is drawn in it. drawn: the curves, each with the number of its runs that
    were evaluated during training.
    """
    evaluated = [(curve, runs) for curve, runs in drawn.values() if not curve.training]
    banded = evaluated if len(drawn) <= MOST_BANDS else []
    bands = [
        "Wilson over the episodes of one run" if any(c.success and n == 1 for c, n in banded) else "",
        "Student's t over three or more runs"
        if any(curve.success and runs >= LEAST_RUNS for curve, runs in banded)
        else "",
    ]
    lines = ["Points: evaluations during training."] if evaluated else []
    if any(bands):
        lines[0] += f" Bands: 95 % intervals, {', '.join(filter(None, bands))}."
    elif any(not curve.success and runs > 1 for curve, runs in banded):
        lines[0] += " Bands: from the lowest to the highest of several runs."
    if len(evaluated) < len(drawn):
        lines.append(
            f"Dashed: training episodes, which explore, as means of {WINDOWS} windows; {NO_EVALUATION}."
        )
    lines.append("Labels: the final measurement, on other episodes.")
    return "\n".join(lines)


def short_names(names: list[str]) -> list[str]:
    """Paths below the folder that all have in common, of which the last `LONGEST` characters are kept: whole
    paths would leave no room for the plot.
    """
    paths = [Path(name).resolve() for name in names]
    common = Path(os.path.commonpath([path.parent for path in paths]))
    short = [str(path.relative_to(common)) for path in paths]
    return [name if len(name) <= LONGEST else f"…{name[1 - LONGEST :]}" for name in short]


def without_curve(run: PastRun) -> str:
    """Name of a run without learning curve, with the cause."""
    cause = (
        f"{NO_EVALUATION}, and no episode in metrics.jsonl"
        if run.done
        else "not finished; resume=true continues it"
    )
    return f"{run.path} ({cause})"


def final_success(runs: list[PastRun]) -> str:
    """Success with its 95 % interval: Wilson for one run, Student's t over three or more.

    Without a reported success, it is the mean return. Episodes of one run share its training, so episodes of
    several runs are not independent and are not pooled. Two runs are too few for an interval; their rates are
    listed.
    """
    rates = [run.rate for run in runs if run.rate is not None]
    if measured := [run for run in runs if run.return_in_words]:
        returns = [run.mean_return for run in measured if run.mean_return is not None]
        if len(measured) == 1 or not returns:
            return measured[0].return_in_words
        lost = sum(run.lost_returns for run in measured)
        without = f", without {counted(lost, 'return')} not finite" if lost else ""
        return f"mean return {mean(returns):.4g}, mean of {counted(len(returns), 'run')}{without}"
    if not rates:
        return "not measured" if any(run.done for run in runs) else "not finished"
    missing = f", {len(runs) - len(rates)} not measured" if len(rates) < len(runs) else ""
    if len(rates) == 1:
        return f"{rates[0]}{missing}"
    each = [rate.rate for rate in rates]
    over = f"{100 * mean(each):.0f} %, mean of {len(rates)} runs"
    if len(rates) < LEAST_RUNS:
        return f"{over} ({' and '.join(f'{100 * rate:.0f} %' for rate in each)}){missing}"
    found = rate_over_seeds(rates)
    return f"{over} [{100 * found.low:.0f}, {100 * found.high:.0f}]{missing}"


def read_group(name: str) -> list[PastRun]:
    """One run, or the runs below a folder (seeds of one setting). Raises CheckpointError without a run."""
    if runs := [PastRun.read(path) for path in find_runs(Path(name))]:
        return runs
    raise CheckpointError(f"{no_run(Path(name))} Give the folder of a run, or one around several seeds.")


def training_curve(name: str, runs: list[PastRun]) -> Curve | None:
    """Success of training episodes, or their return, in `WINDOWS` windows of environment steps, up to the
    steps that all runs have made. None without such episodes.
    """
    found = [EpisodesInTraining.read(run.path / METRICS_FILE) for run in runs]
    known = [episodes for episodes in found if episodes is not None]
    if not known or len({episodes.success for episodes in known}) > 1:
        return None
    end = min(episodes.env_steps[-1] for episodes in known)
    ends = [round(end * (i + 1) / WINDOWS) for i in range(WINDOWS)]
    means = [episodes.means(ends) for episodes in known]
    return replace(Curve.from_training(name, ends, means, known[0].success), result=result_of(runs))


def result_of(runs: list[PastRun]) -> str:
    """The final measurement; empty without one."""
    return final_success(runs) if any(run.rate or run.return_in_words for run in runs) else ""


def _evaluated(run: PastRun) -> bool:
    """True if the run was evaluated during training."""
    return run.curve is not None and bool(run.curve.env_steps)


def curve_of(name: str, runs: list[PastRun]) -> Curve | None:
    """Curve with Wilson intervals over episodes for one run, or Student's intervals over three or more runs;
    of the mean return, with the range of the runs, where the environment reports no success.

    Two runs have no intervals: with two values, they would fill the plot. None if no run was evaluated during
    training. Raises ConfigError for runs evaluated at different steps.
    """
    measured = [run.curve for run in runs if run.curve is not None and run.curve.env_steps]
    if not measured:
        return None
    steps = measured[0].env_steps
    result = result_of(runs)
    returns_only = not measured[0].reports_success or any(run.return_in_words for run in runs)
    if len(measured) == 1 and not returns_only:
        return replace(Curve.from_rates(name, steps, measured[0].rates), result=result)
    if any(curve.env_steps != steps for curve in measured):
        raise ConfigError(
            f"The runs below {name} were evaluated at different steps: compare them one by one."
        )
    if returns_only:
        return replace(Curve.from_returns(name, steps, [curve.returns for curve in measured]), result=result)
    drawn = replace(Curve.from_seeds(name, steps, [curve.rates for curve in measured]), result=result)
    return drawn if len(measured) >= LEAST_RUNS else replace(drawn, low=drawn.value, high=drawn.value)
