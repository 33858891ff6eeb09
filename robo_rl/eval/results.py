"""The rows of the table that `make demo` prints, and `results.json`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from robo_rl.core.files.durable import write_json
from robo_rl.core.provenance import commit, machine
from robo_rl.eval.stats import SuccessRate
from robo_rl.eval.timing import Latency

LABELS = {
    "base": "Base",
    "base_zero_noise": "Base, zero noise",
    "steered": "Noise steering",
    "residual": "Residual",
    "head": "Single-step head",
}
MEANINGS = {
    "base": "The policy as the demonstrations alone taught it, with fresh N(0, I) noise for every decision.",
    "base_zero_noise": "The same weights with noise that is zero: one answer per state.",
    "steered": "The base, unchanged, under a small network that learned by trial which noise to give it.",
    "residual": "The base, unchanged, and a small network that learned by trial what to add to each of its actions.",
    "head": "What the better of these two decides, distilled into a single network call, run from the exported bundle.",
}


@dataclass(frozen=True, slots=True)
class ResultRow:
    """One policy. Costs are what it took to train it from the stage before: the base, or the head's
    teacher.
    """

    name: str
    rate: SuccessRate
    p_vs_base: float | None  # exact McNemar on the shared seeds; None for the base itself
    latency: Latency
    env_steps: int  # of fine-tuning
    train_wall_s: float
    train_cpu_s: float

    @property
    def label(self) -> str:
        return LABELS.get(self.name, self.name)

    @property
    def meaning(self) -> str:
        """What this row is, in a sentence; empty for a row that is none of the demo's."""
        return MEANINGS.get(self.name, "")

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            **self.rate.to_json(),
            "p_vs_base": self.p_vs_base,
            "decision_ms_p50": self.latency.p50_ms,
            "decision_ms_p99": self.latency.p99_ms,
            "decision_ms_cpu": self.latency.cpu_ms,
            "env_steps": self.env_steps,
            "train_cpu_s": self.train_cpu_s,
        }


def write_results(path: Path, rows: Sequence[ResultRow], wall_s: float) -> None:
    """{"commit", "machine", "wall_s", "rows": [...]}, written whole or not at all."""
    out = {
        "commit": commit(),
        "machine": machine(),
        "wall_s": wall_s,
        "rows": [row.to_json() for row in rows],
    }
    write_json(path, out)
