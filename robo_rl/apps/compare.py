"""`robo-rl compare a b`: learning curves with intervals in one plot, and a table of final success."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from statistics import mean

from robo_rl.conf.history import CompareConfig
from robo_rl.core.errors import CheckpointError, ConfigError
from robo_rl.eval.plots import Curve, write_learning_curves
from robo_rl.eval.stats import rate_over_seeds
from robo_rl.runs.history import PastRun, find_runs, no_run

LEAST_RUNS = 3  # for an interval over runs
LONGEST = 32  # characters of a label in the plot
CAPTION = (
    "Points: evaluations during training. Bands: 95 % intervals, Wilson over the episodes of one run, "
    "Student's t over three or more runs.\nLabels: the final measurement, on other episodes."
)
CAPTION_OF_RETURNS = (
    "Points: evaluations during training. Bands: from the lowest to the highest of several runs.\n"
    "Labels: the final measurement, on other episodes."
)


def main(config: CompareConfig) -> int:
    """Plot the curves, and print the table."""
    if len(config.runs) < 2:
        raise ConfigError(
            f"Found {len(config.runs)} run, expected two or more: robo-rl compare runs/a runs/b"
        )
    groups = {name: read_group(name) for name in config.runs}
    width = max(map(len, groups))
    for name, runs in groups.items():
        print(f"{name:<{width}}  {final_success(runs)}")
    labels = short_names(list(groups))
    curves = [curve_of(name, runs) for name, runs in groups.items()]
    drawn = [
        replace(curve, label=label) for label, curve in zip(labels, curves, strict=True) if curve is not None
    ]
    caption = CAPTION if all(curve.success for curve in drawn) else CAPTION_OF_RETURNS
    files = write_learning_curves(Path(config.out), drawn, caption=caption)
    print(f"Curves: {', '.join(map(str, files))}")
    missing = [
        run for runs in groups.values() for run in runs if run.curve is None or not run.curve.env_steps
    ]
    if missing:
        print(f"Not in the plot: {', '.join(map(without_curve, missing))}")
    return 0


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
    cause = "no evaluation during training" if run.done else "not finished; resume=true continues it"
    return f"{run.path} ({cause})"


def final_success(runs: list[PastRun]) -> str:
    """Success with its 95 % interval: Wilson for one run, Student's t over three or more.

    Without a reported success, it is the mean return. Episodes of one run share its training, so episodes of
    several runs are not independent and are not pooled. Two runs are too few for an interval; their rates are
    listed.
    """
    rates = [run.rate for run in runs if run.rate is not None]
    if returns := [run.mean_return for run in runs if run.mean_return is not None]:
        return f"mean return {mean(returns):.4g}" + (f", mean of {len(returns)} runs" if returns[1:] else "")
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
    known = any(run.rate or run.mean_return is not None for run in runs)
    result = final_success(runs) if known else ""
    returns_only = not measured[0].reports_success or any(run.mean_return is not None for run in runs)
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
