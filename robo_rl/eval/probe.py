"""Probe of a base policy: success rate over draws of its noise, which decides between steering and a
residual.

Steering can only select among behaviours of the base; a residual can also produce others. If most seeds are
solved by some draw of the noise, steering suffices.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from robo_rl.core.errors import ConfigError
from robo_rl.core.protocols import ChunkPolicy, NoiseSource, VecEnv
from robo_rl.eval.protocols import ExecutorFactory, Progress
from robo_rl.eval.rollout import eval_seeds, evaluate
from robo_rl.eval.stats import SuccessRate

Method = Literal["steering", "residual", "steering+residual"]
NoiseFactory = Callable[
    [float, int], NoiseSource
]  # (scale, stream) -> noise; scale 0 is the zero-noise policy


@dataclass(frozen=True, slots=True)
class Recommendation:
    """Recommended method with the reason in a sentence."""

    method: Method
    reason: str


@dataclass(frozen=True, slots=True)
class Probe:
    """Success of a base policy under three ways of drawing its noise."""

    gaussian: SuccessRate  # N(0, I), one draw per seed
    zero: SuccessRate  # zero noise, same seeds
    best_of: SuccessRate  # seeds that at least one of `draws` independent draws solves
    draws: int
    env_steps: int
    cpu_s: float
    alone: SuccessRate | None = (
        None  # the better of N(0, I) and zero noise on the seeds of `best_of`; None: unknown
    )
    reports_success: bool = True  # False: the environment reports none, so the rates mean nothing

    @property
    def best_alone(self) -> float:
        """Success of the base without training, on the seeds of `best_of` if known.

        The first 25 of 50 seeds may be 5 points easier by chance, and noise without effect would seem to
        help.
        """
        return max(self.gaussian.rate, self.zero.rate) if self.alone is None else self.alone.rate

    def recommend(
        self, support: float = 0.95, partial: float = 0.85, headroom: float = 0.05
    ) -> Recommendation:
        """Steering if some draw solves at least `support` of the seeds, else a residual.

        Between `partial` and `support`, if the best draw beats the base by at least `headroom`: a residual on
        top of steering. Below, the steps are better spent on residuals, whose successes can be imitated.
        """
        best = f"The best of {self.draws} noise draws solves {self.best_of}"
        if self.best_of.rate >= support:
            return Recommendation("steering", f"{best}: the base's noise contains the success.")
        if self.best_of.rate >= partial and self.best_of.rate - self.best_alone >= headroom:
            gain = f"{100 * (self.best_of.rate - self.best_alone):.0f} points above the base"
            return Recommendation(
                "steering+residual", f"{best}, {gain}: steering helps, but not on every seed."
            )
        return Recommendation(
            "residual", f"{best}: no draw solves the others, so the actions have to change."
        )

    def to_json(self) -> dict[str, Any]:
        rates = {"gaussian": self.gaussian, "zero": self.zero, "best_of": self.best_of, "alone": self.alone}
        out: dict[str, Any] = {name: rate.to_json() for name, rate in rates.items() if rate is not None}
        out |= {"draws": self.draws, "env_steps": self.env_steps, "cpu_s": self.cpu_s}
        return out | {"reports_success": self.reports_success}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Probe:
        names = ("gaussian", "zero", "best_of", "alone")
        read: dict[str, Any] = {
            name: SuccessRate(data[name]["k"], data[name]["n"]) for name in names if name in data
        }
        read |= {name: data[name] for name in ("draws", "env_steps", "cpu_s")}
        return cls(**read, reports_success=bool(data.get("reports_success", True)))  # older ones have none


def probe(
    env: VecEnv,
    policy: ChunkPolicy,
    executor_factory: ExecutorFactory,
    make_noise: NoiseFactory,
    *,
    eval_seed: int = 0,
    episodes: int = 50,
    best_of_seeds: int = 25,
    draws: int = 8,
    progress: Progress | None = None,
) -> Probe:
    """Evaluate with N(0, I), with zero noise, and best of `draws` on the first `best_of_seeds` of the same
    seeds.

    A seed solved by one draw is not drawn again, so probing a good base costs little more than two
    evaluations. It ends after the first one where no success is reported.
    """
    if not 1 <= best_of_seeds <= episodes or draws < 1:
        raise ConfigError(
            f"A probe needs 1 <= best_of_seeds <= episodes and draws >= 1, "
            f"found best_of_seeds={best_of_seeds}, episodes={episodes}, draws={draws}."
        )
    seeds = eval_seeds(eval_seed, episodes)
    gaussian = evaluate(env, policy, executor_factory, make_noise(1.0, 0), seeds, progress)
    if not gaussian.reports_success:
        rate, cost = gaussian.rate, (gaussian.env_steps, gaussian.cpu_s)
        return Probe(rate, rate, rate, 1, *cost, reports_success=False)
    zero = evaluate(env, policy, executor_factory, make_noise(0.0, 0), seeds, progress)
    results = [gaussian, zero]
    solved = dict(zip(seeds[:best_of_seeds], gaussian.success, strict=False))
    for stream in range(1, draws):
        if not (unsolved := [seed for seed, success in solved.items() if not success]):
            break
        results.append(evaluate(env, policy, executor_factory, make_noise(1.0, stream), unsolved, progress))
        solved.update(zip(unsolved, results[-1].success, strict=True))
    same = [SuccessRate.of(result.success[:best_of_seeds]) for result in (gaussian, zero)]
    return Probe(
        gaussian=gaussian.rate,
        zero=zero.rate,
        best_of=SuccessRate.of(list(solved.values())),
        draws=draws,
        env_steps=sum(result.env_steps for result in results),
        cpu_s=sum(result.cpu_s for result in results),
        alone=max(same, key=lambda rate: rate.rate),
    )
