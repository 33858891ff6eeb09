"""Outcomes of training episodes, counted in parts of the training: evidence without further steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from robo_rl.eval.stats import SuccessRate, chance_of_less

PARTS = 12  # equal parts of the steps of a run; its last third has four
CLEAR = 0.05  # p of a rise of success
LATE = 0.9  # share of the step limit after which a success counts as late


@dataclass
class EpisodeTally:
    """Counts of training episodes."""

    episodes: int = 0
    successes: int = 0
    rewarded: int = 0  # with a return other than 0
    at_once: int = 0  # successes in the first step
    late: int = 0  # successes in the last tenth of the step limit, but not at the limit itself
    unreported: int = 0  # without a report of success or failure

    NAMES: ClassVar = ("episodes", "successes", "rewarded", "at_once", "late", "unreported")

    def __add__(self, other: EpisodeTally) -> EpisodeTally:
        return EpisodeTally(*(getattr(self, name) + getattr(other, name) for name in self.NAMES))

    @property
    def rate(self) -> SuccessRate | None:
        """Success; None without an episode."""
        return SuccessRate(self.successes, self.episodes) if self.episodes else None

    def to_json(self) -> list[int]:
        return [getattr(self, name) for name in self.NAMES]


@dataclass
class TrainingHistory:
    """Episodes of the base alone, and those of each part of the training."""

    base: EpisodeTally = field(default_factory=EpisodeTally)
    parts: list[EpisodeTally] = field(default_factory=lambda: [EpisodeTally() for _ in range(PARTS)])
    limit_steps: int | None = None  # longest training episode; None: unknown
    sparse: bool = True  # whether success alone is rewarded
    can_be_dense: bool = True  # whether the environment has reward=dense

    def add(
        self,
        success: bool,
        steps: int,
        total_reward: float,
        *,
        of_base: bool,
        progress: float,
        reported: bool = True,
    ) -> None:
        """Add an episode. progress: share of the run's steps that are done, in [0, 1]. reported: False if
        the environment has not reported whether it succeeded.

        A success at the limit itself is not late: where success does not end an episode, all last that long.
        """
        limit = self.limit_steps
        late = success and limit is not None and LATE * limit < steps < limit
        one = EpisodeTally(
            episodes=1,
            successes=int(success),
            rewarded=int(total_reward != 0.0),
            at_once=int(success and steps <= 1),
            late=int(late),
            unreported=int(not reported),
        )
        if of_base:
            self.base += one
        else:
            self.parts[min(PARTS - 1, int(PARTS * progress))] += one

    @property
    def learning(self) -> EpisodeTally:
        """All episodes but the base's."""
        return sum(self.parts, EpisodeTally())

    @property
    def all(self) -> EpisodeTally:
        """All episodes."""
        return self.base + self.learning

    def thirds(self) -> tuple[EpisodeTally, EpisodeTally, EpisodeTally]:
        """Episodes of the thirds of the run, without those of the base."""
        third = PARTS // 3
        first, second, last = (sum(self.parts[i * third : (i + 1) * third], EpisodeTally()) for i in range(3))
        return first, second, last

    def rising(self) -> tuple[SuccessRate, SuccessRate] | None:
        """Success in the second and the last third, if the last is clearly better; None otherwise."""
        _, second, last = self.thirds()
        if second.rate is None or last.rate is None or chance_of_less(second.rate, last.rate) > CLEAR:
            return None
        return second.rate, last.rate

    def to_json(self) -> dict[str, Any]:
        return {
            "base": self.base.to_json(),
            "parts": [part.to_json() for part in self.parts],
            "limit_steps": self.limit_steps,
            "sparse": self.sparse,
            "can_be_dense": self.can_be_dense,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> TrainingHistory:
        parts = [EpisodeTally(*map(int, counts)) for counts in data["parts"]]
        limit = data["limit_steps"]
        base = EpisodeTally(*map(int, data["base"]))
        limit_steps = None if limit is None else int(limit)
        return cls(base, parts, limit_steps, bool(data["sparse"]), bool(data.get("can_be_dense", True)))
