"""Learning curve and result of a fine-tuning run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from policies.registry import SavedPolicy
from robo_rl.eval.stats import SuccessRate

CURVE_FILE = "curve.json"


@dataclass
class LearningCurve:
    """Evaluations of a run so far; saved in its checkpoint."""

    env_steps: list[int] = field(default_factory=list)  # environment steps at each evaluation
    rates: list[SuccessRate] = field(default_factory=list)
    returns: list[float] = field(default_factory=list)  # mean return per episode
    train_cpu_s: float = 0.0  # simulation (also in workers) and learning, without evaluations

    def to_json(self) -> dict[str, Any]:
        rates = [[rate.k, rate.n] for rate in self.rates]
        return {
            "env_steps": list(self.env_steps),
            "rates": rates,
            "returns": list(self.returns),
            "train_cpu_s": self.train_cpu_s,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> LearningCurve:
        rates = [SuccessRate(int(k), int(n)) for k, n in data["rates"]]
        returns = [float(total) for total in data["returns"]]
        return cls([int(step) for step in data["env_steps"]], rates, returns, float(data["train_cpu_s"]))


@dataclass(frozen=True)
class TuningResult:
    """Result of a finished run."""

    policy: SavedPolicy
    noise_scale: float
    curve: LearningCurve
    env_steps: int
