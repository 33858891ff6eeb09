"""Rows of the tables and of results.json that `fly`, `vision`, `swarm` and `transfer` write."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from robo_rl.eval.stats import PairedTest, SuccessRate, paired_test
from sim.flight.trial import Trial


@dataclass(frozen=True)
class FlyRow:
    """Result of one pilot on the shared starts."""

    name: str
    position_error_m: float | None  # None: no flight lasted to the end
    terminated_fraction: float
    held: SuccessRate  # stayed and close; on a course: all waypoints or laps completed
    train_cpu_s: float = 0.0
    compile_cpu_s: float = 0.0
    env_steps: int = 0
    seed: int | None = None
    facts: dict[str, float | None] = field(default_factory=dict)  # figures specific to the task

    @classmethod
    def of(cls, name: str, trial: Trial, **cost: Any) -> FlyRow:
        """Means and rates of a trial. cost: CPU seconds, steps and seed of its training, if any."""
        error = float(trial.error_m.mean()) if len(trial.error_m) else None
        facts = trial.facts | {"mean_action_change": trial.action_change}
        return cls(name, error, float(trial.left.float().mean()), held(trial), facts=facts, **cost)

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"held": self.held.to_json()}


@dataclass(frozen=True)
class SwarmRow:
    """Result of one scenario, or of all of them, in one kind of world.

    Rates are per drone. The interval treats the drones of one world as dependent (clustered).
    """

    drones: int
    density: float
    scenario: str
    success: SuccessRate
    hit_drone: float
    hit_cylinder: float
    left: float
    collided: float  # any of the three
    time_to_goal_s: float | None  # mean over successes
    eval_cpu_s: float
    train_cpu_s: float = 0.0
    seed: int = 0

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"success": self.success.to_json()}


@dataclass(frozen=True)
class TransferRow:
    """Result of one pilot in one engine, on the shared starts."""

    pilot: str
    engine: str
    trial: Trial

    @property
    def held(self) -> SuccessRate:
        return held(self.trial)

    @property
    def error_m(self) -> float | None:
        """Mean error of the flights that stayed [m]; None without one."""
        return float(self.trial.error_m.mean()) if len(self.trial.error_m) else None

    @property
    def left_fraction(self) -> float:
        return float(self.trial.left.float().mean())

    def to_json(self) -> dict[str, Any]:
        return {
            "pilot": self.pilot,
            "engine": self.engine,
            "held": self.held.to_json(),
            "terminated_fraction": self.left_fraction,
            "position_error_m": self.error_m,
        }


@dataclass(frozen=True)
class Drop:
    """Effect of a change of engine on one pilot, paired by start."""

    points: float  # loss of success in percentage points; negative: higher success in the other engine
    test: PairedTest

    @classmethod
    def of(cls, home: TransferRow, away: TransferRow) -> Drop:
        first, second = (row.trial.held.tolist() for row in (home, away))
        return cls(100.0 * (home.held.rate - away.held.rate), paired_test(first, second))

    def to_json(self) -> dict[str, Any]:
        return {
            "drop_points": self.points,
            "only_home": self.test.only_first,
            "only_away": self.test.only_second,
            "mcnemar_p": self.test.p_value,
        }


def held(trial: Trial) -> SuccessRate:
    """Success rate of the flights of a trial."""
    return SuccessRate(int(trial.held.sum()), len(trial.held))
