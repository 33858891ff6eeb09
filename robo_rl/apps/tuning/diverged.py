"""Ends of diverged trainings: what to do, and the policy that can still be used."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from robo_rl.apps.tuning.evaluations import Best
from robo_rl.core.errors import DivergedError
from robo_rl.runs.resumable import diverged_words, last_policy
from robo_rl.runs.run_dir import RunDir

# What to do when weights become NaN; the others where method=auto sets the learning rates itself
DIVERGED = "Lower method.learner.lr_actor and .lr_critic, or look for NaN in the environment's rewards."
DIVERGED_IN_AUTO = (
    "Look for NaN in the environment's rewards, or choose a method with lower learning rates, e.g. "
    "method=residual method.learner.lr_actor=3e-5 method.learner.lr_critic=3e-5."
)
DIVERGED_IMITATION = (
    "Look for NaN in the data ({look}), or choose a method that trains no new base, e.g. method=residual."
)


@runtime_checkable
class Restorable(Protocol):
    """Learner whose weights are read and replaced."""

    def weights(self) -> dict[str, Any]: ...

    def load_weights(self, weights: Mapping[str, Any]) -> None: ...


@contextmanager
def best_if_diverged(
    run: RunDir,
    learner: Restorable,
    best: Callable[[], Best | None],
    save: Callable[[Path], None],
    advice: str,
) -> Iterator[None]:
    """Raise DivergedError for any error of the block if weights of `learner` are NaN: an action that is no
    number is refused by the environment first. The best evaluated policy, if any, is kept in `run.best`.

    save: writes the learner's policy into the folder of a run or checkpoint. advice: sentence on what to do.
    """
    try:
        yield
    except Exception as error:
        found = error.found if isinstance(error, DivergedError) else diverged_words(learner.weights())
        if not found:
            raise
        raise DivergedError(found, advice, _kept(run, learner, best(), save)) from error


def _kept(run: RunDir, learner: Restorable, best: Best | None, save: Callable[[Path], None]) -> str:
    """Sentence on the policy that can be used: the best evaluated one, or else the last saved."""
    if best is None:
        return last_policy(run)
    learner.load_weights(best.weights)
    save(run.best)
    return (
        f"The policy of step {best.env_steps}, whose evaluation was the best, is kept: use it by "
        f"policy={run.best}, e.g. robo-rl evaluate policy={run.best}."
    )
