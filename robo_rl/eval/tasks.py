"""Evaluations in an environment of several tasks: seeds with equal shares, and success of each task."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count

from robo_rl.core.seeding import derive_seed
from robo_rl.eval.rollout import EvalResult
from robo_rl.eval.stats import SuccessRate

TaskOf = Callable[[int], int]  # episode seed -> number of its task


def balanced_seeds(eval_seed: int, n: int, tasks: Sequence[int], task_of: TaskOf) -> list[int]:
    """The first n seeds of evaluation `eval_seed` that give each of these tasks an equal share, up to one."""
    whole, rest = divmod(n, len(tasks))
    room = {task: whole + (i < rest) for i, task in enumerate(tasks)}
    seeds: list[int] = []
    for i in count():
        if len(seeds) == n:
            break
        seed = derive_seed("eval", eval_seed, i)
        if room.get(task_of(seed), 0) > 0:
            room[task_of(seed)] -= 1
            seeds.append(seed)
    return seeds


def rates_by_task(result: EvalResult, names: Sequence[str], task_of: TaskOf) -> dict[str, SuccessRate]:
    """Success of each task that was run, in the order of `names`."""
    outcomes: dict[str, list[bool]] = {name: [] for name in names}
    for seed, success in zip(result.seeds, result.success, strict=True):
        outcomes[names[task_of(seed)]].append(success)
    return {name: SuccessRate.of(each) for name, each in outcomes.items() if each}
