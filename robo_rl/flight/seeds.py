"""Training of one policy per seed, one after the other, as one resumable run.

This module parses no settings, and prints and writes nothing: the caller gives `begin`, `keep` and `log`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast, runtime_checkable

import torch
from torch import Tensor, nn

from policies.registry import SavedPolicy
from robo_rl.core.provenance import commit
from robo_rl.eval.timing import cpu_seconds

LOG_EVERY = 20  # updates


@runtime_checkable
class Trainer(Protocol):
    """A learner whose `update` is called until `done`."""

    @property
    def done(self) -> bool: ...

    @property
    def updates(self) -> int: ...

    @property
    def env_steps(self) -> int: ...

    def update(self) -> dict[str, Tensor]: ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...


def no_change() -> None:
    """Do nothing; the default of `before` and `after`."""


def no_scalars() -> dict[str, Tensor]:
    """No scalars in addition to the learner's."""
    return {}


@dataclass(frozen=True)
class SeedTraining:
    """Training of one seed.

    compile_s: CPU seconds that compiling its simulator took. before: called before every update, e.g. for a
    curriculum. after: copies the trained weights into `policy`; called at the end and for each checkpoint.
    scalars: logged with those of the trainer.
    """

    policy: SavedPolicy
    trainer: Trainer
    compile_s: float
    before: Callable[[], None] = no_change
    after: Callable[[], None] = no_change
    scalars: Callable[[], dict[str, Tensor]] = no_scalars


class SeedTrainings:
    """One training per seed; a `Resumable` (robo_rl/runs/resumable.py).

    begin(seed): a new training of `updates` updates. keep(seed, policy, note): stores a trained policy.
    log(step, scalars): every `LOG_EVERY` updates. about: entries shared by the notes of all policies. `notes`
    holds the notes of the finished trainings.
    """

    def __init__(
        self,
        seeds: Sequence[int],
        updates: int,
        begin: Callable[[int], SeedTraining],
        *,
        keep: Callable[[int, SavedPolicy, dict[str, Any]], None],
        log: Callable[[int, dict[str, Any]], None],
        about: Mapping[str, Any],
    ) -> None:
        self.notes: list[dict[str, Any]] = []
        self._seeds, self._updates, self._begin = seeds, updates, begin
        self._keep, self._log, self._about = keep, log, about
        self._now: SeedTraining | None = None
        self._used_s = 0.0  # CPU seconds of the running training

    @property
    def done(self) -> bool:
        return len(self.notes) == len(self._seeds)

    @property
    def step(self) -> int:
        """Updates over all seeds."""
        return len(self.notes) * self._updates + (0 if self._now is None else self._now.trainer.updates)

    @property
    def _seed(self) -> int:
        return self._seeds[len(self.notes)]

    def advance(self) -> None:
        """Make one update. The first of a seed creates its training, the last one stores its policy."""
        if self._now is None:
            self._now, self._used_s = self._begin(self._seed), 0.0
        now, start_s = self._now, cpu_seconds()
        now.before()
        logs = now.trainer.update()
        self._used_s += cpu_seconds() - start_s
        if now.trainer.updates % LOG_EVERY == 0 or now.trainer.done:
            seed = torch.tensor(float(self._seed))
            self._log(self.step, {**logs, **now.scalars(), "train/seed": seed})
        if now.trainer.done:
            self._end(now)

    def _end(self, now: SeedTraining) -> None:
        now.after()
        note = {
            **self._about,
            "env_steps": now.trainer.env_steps,
            "seed": self._seed,
            "noise": 0.0,
            "train_cpu_s": round(self._used_s, 2),
            "compile_cpu_s": round(now.compile_s, 2),
            "commit": commit(),
        }
        self._keep(self._seed, now.policy, note)
        self.notes.append(note)
        self._now = None

    def weights(self) -> dict[str, Any]:
        """Weights of the policy in training; empty between two seeds."""
        if self._now is None:
            return {}
        self._now.after()
        return cast("nn.Module", self._now.policy).state_dict()

    def state_dict(self) -> dict[str, Any]:
        state: dict[str, Any] = {"done": list(self.notes)}
        if self._now is not None:
            state |= {"learner": self._now.trainer.state_dict(), "train_cpu_s": self._used_s}
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.notes = list(state["done"])
        if "learner" in state:
            self._now, self._used_s = self._begin(self._seed), float(state["train_cpu_s"])
            self._now.trainer.load_state_dict(state["learner"])
