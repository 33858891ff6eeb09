"""Rows of `results.json` and of the table that `make demo` prints."""

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
    "base": "The policy trained on the demonstrations alone, with new N(0, I) noise for every decision.",
    "base_zero_noise": "The same weights with zero noise: one action chunk per state.",
    "steered": "The frozen base and a small network, trained by RL, that chooses its noise.",
    "residual": "The frozen base and a small network, trained by RL, that adds a correction to each action.",
    "head": "The better of these two, distilled into a single network call and run from the exported bundle.",
}


@dataclass(frozen=True, slots=True)
class ResultRow:
    """One policy. Costs are those of its own training stage: from the base, or from the head's teacher."""

    name: str
    rate: SuccessRate
    p_vs_base: float | None  # exact McNemar on the shared seeds; None for the base
    latency: Latency
    env_steps: int  # of fine-tuning
    train_wall_s: float
    train_cpu_s: float
    p_vs_zero_noise: float | None = None  # the same test against the base with zero noise

    @property
    def label(self) -> str:
        return LABELS.get(self.name, self.name)

    @property
    def meaning(self) -> str:
        """One-sentence description of the row; empty if it is not a row of the demo."""
        return MEANINGS.get(self.name, "")

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            **self.rate.to_json(),
            "p_vs_base": self.p_vs_base,
            "p_vs_zero_noise": self.p_vs_zero_noise,
            "decision_ms_p50": self.latency.p50_ms,
            "decision_ms_p99": self.latency.p99_ms,
            "decision_ms_cpu": self.latency.cpu_ms,
            "env_steps": self.env_steps,
            "train_cpu_s": self.train_cpu_s,
        }


def write_results(path: Path, rows: Sequence[ResultRow], wall_s: float) -> None:
    """Write {"commit", "machine", "wall_s", "rows": [...]} atomically."""
    out = {
        "commit": commit(),
        "machine": machine(),
        "wall_s": wall_s,
        "rows": [row.to_json() for row in rows],
    }
    write_json(path, out)
