"""Learning curve and result of a fine-tuning run."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from policies.registry import SavedPolicy
from robo_rl.core.files.durable import json_number
from robo_rl.eval.rollout import EvalResult
from robo_rl.eval.stats import MeanReturn, Measure, SuccessRate
from robo_rl.eval.training_history import TrainingHistory
from robo_rl.runs.metrics import read_metrics

CURVE_FILE = "curve.json"


@dataclass
class LearningCurve:
    """Evaluations of a run so far; saved in its checkpoint."""

    env_steps: list[int] = field(default_factory=list)  # environment steps at each evaluation
    rates: list[SuccessRate] = field(default_factory=list)
    returns: list[float] = field(default_factory=list)  # mean return per episode
    wall_s: list[float] = field(default_factory=list)  # wall time of training until each evaluation
    train_cpu_s: float = 0.0  # simulation (also in workers) and learning, without evaluations
    # Environment steps on which policies were compared: evaluations, comparisons, probe of `auto`.
    selection_steps: int = 0
    reports_success: bool = True  # False: the returns are the measurement, and the rates mean nothing

    def add(self, env_steps: int, wall_s: float, result: EvalResult) -> None:
        """Add an evaluation. wall_s: of training until then."""
        self.env_steps.append(env_steps)
        self.wall_s.append(wall_s)
        self.rates.append(result.rate)
        self.returns.append(result.mean_return)
        self.selection_steps += result.env_steps
        self.reports_success = result.reports_success

    def first_and_best(self) -> tuple[Measure, Measure]:
        """The first evaluation and the best one, by success, or by return where none is reported."""
        found: list[Measure] = list(self.rates)
        if not self.reports_success:
            found = [MeanReturn(mean, rate.n) for mean, rate in zip(self.returns, self.rates, strict=True)]
        known = [each for each in found if math.isfinite(each.value)] or found
        return found[0], max(known, key=lambda measure: measure.value)

    def to_json(self) -> dict[str, Any]:
        rates = [[rate.k, rate.n] for rate in self.rates]
        return {
            "env_steps": list(self.env_steps),
            "rates": rates,
            "returns": [json_number(total) for total in self.returns],
            "train_cpu_s": self.train_cpu_s,
            "wall_s": [round(each, 3) for each in self.wall_s],
            "selection_steps": self.selection_steps,
            "reports_success": self.reports_success,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> LearningCurve:
        rates = [SuccessRate(int(k), int(n)) for k, n in data["rates"]]
        returns = [math.nan if total is None else float(total) for total in data["returns"]]
        steps = [int(step) for step in data["env_steps"]]
        wall_s = [
            float(each) for each in data.get("wall_s", ())
        ]  # older curves have none, and count no selection
        chosen = int(data.get("selection_steps", 0))
        reports = bool(data.get("reports_success", True))
        return cls(steps, rates, returns, wall_s, float(data["train_cpu_s"]), chosen, reports)


@dataclass(frozen=True)
class EpisodesInTraining:
    """Success of a run's training episodes, or their return where the environment reports no success."""

    env_steps: tuple[int, ...]  # at the end of each episode, or of several that ended together
    value: tuple[float, ...]
    success: bool  # False: returns

    @classmethod
    def read(cls, metrics: Path) -> EpisodesInTraining | None:
        """Read a metrics.jsonl; None without episodes. Raises DataError for a damaged file."""
        rows = list(read_metrics(metrics))
        for name in ("train/success", "train/return"):
            if found := [(row["step"], row[name]) for row in rows if row.get(name) is not None]:
                steps, values = zip(*found, strict=True)
                return cls(steps, values, name == "train/success")
        return None

    def means(self, ends: Sequence[float]) -> list[float]:
        """Mean in each of the windows that end at these environment steps; one without an episode has that of
        the window before, or else after.
        """
        sums, counts = [0.0] * len(ends), [0] * len(ends)
        for step, value in zip(self.env_steps, self.value, strict=True):
            if (window := bisect_left(ends, step)) < len(ends):
                sums[window] += value
                counts[window] += 1
        known = [total / n if n else None for total, n in zip(sums, counts, strict=True)]
        latest = next((value for value in known if value is not None), 0.0)
        filled = []
        for mean in known:
            latest = latest if mean is None else mean
            filled.append(latest)
        return filled


@dataclass(frozen=True)
class StageRecord:
    """One stage of a run: its environment steps, and success (or return) before and after, as far as known.

    They are of training episodes, which explore, unless `measured` says that others were run for them.
    """

    name: str
    env_steps: int
    before: Measure | None
    after: Measure | None
    measured: str = "training episodes"

    def to_json(self) -> dict[str, Any]:
        found = {"before": self.before, "after": self.after}
        known = {name: None if each is None else each.to_json() for name, each in found.items()}
        return {"name": self.name, "env_steps": self.env_steps, **known, "measured": self.measured}

    def __str__(self) -> str:
        if self.before is None and self.after is None:
            kind = "training episode" if self.measured == "training episodes" else "episode"
            return f"{self.name}: no {kind} was completed in {self.env_steps} steps"
        change = " -> ".join("unknown" if each is None else str(each) for each in (self.before, self.after))
        return f"{self.name}: {change} ({self.measured}), {self.env_steps} steps"


@dataclass(frozen=True)
class TuningResult:
    """Result of a finished run."""

    policy: SavedPolicy
    noise_scale: float
    curve: LearningCurve
    steps: dict[str, int]  # environment steps by use: base, training, selection, ...; none is counted twice
    sentences: tuple[str, ...] = ()  # what decided which policy is kept
    history: TrainingHistory = field(default_factory=TrainingHistory)  # of the last stage, with all bases
    stages: tuple[StageRecord, ...] = ()

    @property
    def env_steps(self) -> int:
        """Environment steps of the run, all of them."""
        return sum(self.steps.values())
