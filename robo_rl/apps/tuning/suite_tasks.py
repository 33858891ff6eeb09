"""Evaluation in environments of one or several tasks: seeds with equal shares, and success of each task."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from robo_rl.eval.rollout import EvalResult, eval_seeds
from robo_rl.eval.stats import SuccessRate
from robo_rl.eval.tasks import balanced_seeds, rates_by_task
from sim.registry import task_in, tasks_in


def evaluation_seeds(name: str, eval_seed: int, episodes: int, tasks: Sequence[str] = ()) -> list[int]:
    """Seeds of evaluation `eval_seed` in this environment; in a suite, equal shares of `tasks` (none: all).

    A suite with more tasks than episodes has the usual seeds, whose tasks are random.
    """
    known = tasks_in(name)
    chosen = [i for i, task in enumerate(known) if not tasks or task in tasks]
    if not chosen or len(chosen) > episodes:
        return eval_seeds(eval_seed, episodes)
    return balanced_seeds(eval_seed, episodes, chosen, partial(task_in, name))


def success_by_task(name: str, result: EvalResult) -> dict[str, SuccessRate]:
    """Success of each task that was run; empty in an environment of one task."""
    known = tasks_in(name)
    return rates_by_task(result, known, partial(task_in, name)) if known else {}
