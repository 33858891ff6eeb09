"""Training of every seed of a run, with progress bar, log, checkpoints and policy folders."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from torch import nn

from policies.checkpoint import save_policy
from policies.registry import SavedPolicy
from robo_rl.flight.seeds import SeedTraining, SeedTrainings
from robo_rl.runs.resumable import check_weights, resumable
from robo_rl.runs.run_dir import RunDir

LOWER = "Give a lower learning rate."


@dataclass(frozen=True)
class SeedPlan:
    """Trainings of a run: `seeds` policies from `first` on, `updates` each."""

    verb: str
    first: int
    seeds: int
    updates: int
    checkpoint_every: int
    resume: bool
    shown: tuple[str, ...]  # scalars in the progress bar
    about: Mapping[str, Any]  # entries of every policy's note


def train_seeds(
    plan: SeedPlan, run: RunDir, begin: Callable[[int], SeedTraining]
) -> list[tuple[Path, dict[str, Any]]]:
    """Folder and note of every trained policy, in `run`/seed<n>. A resumed run continues its training.

    Raises KeyboardInterrupt, with a sentence on how to continue, after Ctrl-C or SIGTERM, and DivergedError
    for NaN in the weights, which are not saved.
    """

    def keep(seed: int, policy: SavedPolicy, note: dict[str, Any]) -> None:
        check_weights(cast("nn.Module", policy).state_dict(), run, LOWER)
        save_policy(run.path / f"seed{seed}", policy, note)

    seeds = range(plan.first, plan.first + plan.seeds)
    total = plan.updates * plan.seeds
    with resumable(run, total=total, label=plan.verb, resume=plan.resume, shown=plan.shown) as session:

        def fresh(seed: int) -> SeedTraining:
            made = begin(seed)
            session.bar.unpause()  # compilation must not count in the bar's time estimate
            return made

        trainings = SeedTrainings(
            seeds, plan.updates, fresh, keep=keep, log=session.metrics.log, about=plan.about
        )
        if (state := session.take_state()) is not None:
            trainings.load_state_dict(state)
        session.run(
            trainings,
            checkpoint_every=plan.checkpoint_every,
            extra=lambda _: check_weights(trainings.weights(), run, LOWER),
        )
    return [(run.path / f"seed{note['seed']}", note) for note in trainings.notes]
