"""Signal Temporal Logic (STL): formulas over a flight, and the margin by which it satisfies them.

A formula is a tree over named margins in metres, each positive where its statement holds. The margin of the
formula, its robustness, is a distance too: how far the flight could be moved before the formula's truth
changes (Donze and Maler 2010, "Robust Satisfaction of Temporal Logic over Real-Valued Signals").

There are two evaluations: the exact one with minima and maxima, and a smooth one for gradients, in which a
minimum is -logsumexp(-k x) / k and a maximum the softmax(k x)-weighted mean. Both approximations are lower
bounds, so a flight with a positive smooth margin satisfies the formula (Gilpin et al. 2020, "A Smooth
Robustness Measure of STL").
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from robo_rl.core.errors import ConfigError
from robo_rl.core.shapes import Float

Margins = Mapping[str, Float[Tensor, "t n"]]  # name -> margin [m] at every time of every flight


@dataclass(frozen=True, slots=True)
class Grid:
    """Evaluation of a formula: time between samples, sharpness k [1/m] of smooth extrema (None: exact)."""

    dt_s: float
    sharpness: float | None = None

    def steps(self, time_s: float) -> int:
        """Number of samples in a time."""
        return round(time_s / self.dt_s)

    def lowest(self, x: Float[Tensor, "... w"]) -> Float[Tensor, "..."]:
        """Minimum over the last axis."""
        k = self.sharpness
        return x.amin(-1) if k is None else -torch.logsumexp(-k * x, -1) / k

    def lowest_so_far(self, x: Float[Tensor, "t n"], width: int) -> Float[Tensor, "u n w"]:
        """Running minimum over windows of `width` samples, one window from each sample."""
        k = self.sharpness
        if k is None:
            return x.unfold(0, width, 1).cummin(-1).values
        windows = len(x) - width + 1
        sums = [-k * x[:windows]]
        for later in range(1, width):  # logcumsumexp does the same; its gradient costs five times as much
            sums.append(torch.logaddexp(sums[-1], -k * x[later : later + windows]))
        return torch.stack(sums, -1) / -k

    def highest(self, x: Float[Tensor, "... w"]) -> Float[Tensor, "..."]:
        """Maximum over the last axis."""
        k = self.sharpness
        return x.amax(-1) if k is None else (torch.softmax(k * x, -1) * x).sum(-1)


class Formula(ABC):
    """A statement about the time from now on."""

    @property
    @abstractmethod
    def horizon_s(self) -> float:
        """Time into the future on which the formula's truth depends."""

    @abstractmethod
    def horizon_steps(self, grid: Grid) -> int:
        """Samples after now that `margin` reads. Every time of the formula is rounded to the grid on its own,
        so this can exceed `horizon_s` rounded as a whole.
        """

    @abstractmethod
    def margin(self, margins: Margins, grid: Grid) -> Float[Tensor, "u n"]:
        """Margin [m] at each of the first u times, those followed by at least `horizon_steps` samples."""

    @abstractmethod
    def negated(self) -> Formula:
        """The negation, moved down to the names. Raises ConfigError where a part has no negation."""

    @abstractmethod
    def __str__(self) -> str: ...


@dataclass(frozen=True)
class Atom(Formula):
    """A named margin, or its negation."""

    name: str
    holds: bool = True

    @property
    def horizon_s(self) -> float:
        return 0.0

    def horizon_steps(self, grid: Grid) -> int:
        return 0

    def margin(self, margins: Margins, grid: Grid) -> Float[Tensor, "t n"]:
        return margins[self.name] if self.holds else -margins[self.name]

    def negated(self) -> Atom:
        return Atom(self.name, not self.holds)

    def __str__(self) -> str:
        return self.name if self.holds else f"!{self.name}"


@dataclass(frozen=True)
class Junction(Formula):
    """All of its parts ("&"), or at least one ("|")."""

    parts: tuple[Formula, ...]
    all_of: bool

    @property
    def horizon_s(self) -> float:
        return max(part.horizon_s for part in self.parts)

    def horizon_steps(self, grid: Grid) -> int:
        return max(part.horizon_steps(grid) for part in self.parts)

    def margin(self, margins: Margins, grid: Grid) -> Float[Tensor, "u n"]:
        values = [part.margin(margins, grid) for part in self.parts]
        times = min(len(value) for value in values)
        together = torch.stack([value[:times] for value in values], -1)
        return grid.lowest(together) if self.all_of else grid.highest(together)

    def negated(self) -> Junction:
        return Junction(tuple(part.negated() for part in self.parts), not self.all_of)

    def __str__(self) -> str:
        return "(" + (" & " if self.all_of else " | ").join(str(part) for part in self.parts) + ")"


@dataclass(frozen=True)
class Timed(Formula):
    """The part holds at all times in [start, end] from now (G, always), or at one of them (F, eventually)."""

    start_s: float
    end_s: float
    part: Formula
    always: bool

    @property
    def horizon_s(self) -> float:
        return self.end_s + self.part.horizon_s

    def horizon_steps(self, grid: Grid) -> int:
        return grid.steps(self.end_s) + self.part.horizon_steps(grid)

    def margin(self, margins: Margins, grid: Grid) -> Float[Tensor, "u n"]:
        inner = self.part.margin(margins, grid)
        first, width = grid.steps(self.start_s), grid.steps(self.end_s) - grid.steps(self.start_s) + 1
        if grid.sharpness is None:  # the same by pooling, without a copy per window
            sign = -1.0 if self.always else 1.0
            return sign * F.max_pool1d(sign * inner[first:].T, width, 1).T
        windows = inner[first:].unfold(0, width, 1)
        return grid.lowest(windows) if self.always else grid.highest(windows)

    def negated(self) -> Timed:
        return Timed(self.start_s, self.end_s, self.part.negated(), not self.always)

    def __str__(self) -> str:
        return f"{'G' if self.always else 'F'}[{self.start_s:g},{self.end_s:g}] {self.part}"


@dataclass(frozen=True)
class Until(Formula):
    """`goal` holds at some time in [start, end] from now, and `before` at all times up to that one."""

    start_s: float
    end_s: float
    before: Formula
    goal: Formula

    @property
    def horizon_s(self) -> float:
        return self.end_s + max(self.before.horizon_s, self.goal.horizon_s)

    def horizon_steps(self, grid: Grid) -> int:
        return grid.steps(self.end_s) + max(side.horizon_steps(grid) for side in (self.before, self.goal))

    def margin(self, margins: Margins, grid: Grid) -> Float[Tensor, "u n"]:
        before, goal = self.before.margin(margins, grid), self.goal.margin(margins, grid)
        first, last = grid.steps(self.start_s), grid.steps(self.end_s)
        times = min(len(before), len(goal)) - last
        kept = grid.lowest_so_far(before[: times + last], last + 1)[..., first:]
        met = goal[first : times + last].unfold(0, last - first + 1, 1)
        return grid.highest(grid.lowest(torch.stack([kept, met], -1)))

    def negated(self) -> Formula:
        raise ConfigError(f"The negation of {self} is not supported. Write what must hold instead.")

    def __str__(self) -> str:
        return f"({self.before} U[{self.start_s:g},{self.end_s:g}] {self.goal})"


def atoms(formula: Formula) -> set[str]:
    """All names in the formula."""
    if isinstance(formula, Atom):
        return {formula.name}
    if isinstance(formula, Timed):
        return atoms(formula.part)
    parts = formula.parts if isinstance(formula, Junction) else _sides(formula)
    return set().union(*(atoms(part) for part in parts))


def _sides(formula: Formula) -> tuple[Formula, ...]:
    return (formula.before, formula.goal) if isinstance(formula, Until) else ()
