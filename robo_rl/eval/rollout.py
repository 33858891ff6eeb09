"""Paired evaluation: every seed once, with the same resets and the same noise for every policy."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import count
from typing import Any

import torch
from torch import Tensor

from robo_rl.core.errors import ConfigError, EnvError
from robo_rl.core.files.durable import json_number
from robo_rl.core.protocols import (
    ChunkPolicy,
    ForeseesPlans,
    NoiseSource,
    VecEnv,
    picture_skipping,
    reported_success,
)
from robo_rl.core.seeding import derive_seed
from robo_rl.core.shapes import Float, Int
from robo_rl.eval.protocols import ExecutorFactory, Progress, Watcher
from robo_rl.eval.stats import (
    MeanReturn,
    PairedTest,
    ReturnTest,
    SuccessRate,
    paired_return_test,
    paired_test,
)
from robo_rl.eval.timing import cpu_seconds


@dataclass(frozen=True, slots=True)
class EvalResult:
    """Outcomes in seed order, one entry per seed."""

    seeds: tuple[int, ...] = field(repr=False)
    success: tuple[bool, ...] = field(repr=False)
    length: tuple[int, ...] = field(repr=False)  # control steps of each episode
    returns: tuple[float, ...] = field(repr=False)  # sum of the environment's rewards in each episode
    # Push-T's score in [0, 1]; None if the environment reports none
    max_coverage: tuple[float, ...] | None = field(repr=False)
    env_steps: int  # total simulated steps, including surplus episodes
    wall_s: float
    cpu_s: float  # of this process and its simulator workers
    # error of each episode, None where it was not reached; None: the environment reports none
    errors_m: tuple[float | None, ...] | None = field(default=None, repr=False)
    reports_success: bool = True  # False: the environment has returns and never says whether it is solved

    @property
    def rate(self) -> SuccessRate:
        return SuccessRate.of(self.success)

    @property
    def mean_return(self) -> float:
        return sum(self.returns) / len(self.returns)

    @property
    def mean_coverage(self) -> float | None:
        return None if self.max_coverage is None else sum(self.max_coverage) / len(self.max_coverage)

    @property
    def mean_error_m(self) -> float | None:
        """Mean error of the episodes that have one [m]; None without such an episode."""
        known = [error for error in self.errors_m or () if error is not None]
        return sum(known) / len(known) if known else None

    def __str__(self) -> str:
        """Success such as 57/100 = 57 % [47, 66], with coverage (Push-T), error (flight) or a non-sparse
        return. Without a success, the mean return alone.
        """
        more = "" if self.mean_coverage is None else f", mean max coverage {self.mean_coverage:.3f}"
        error_m = self.mean_error_m
        more += "" if error_m is None else f", mean error {1000 * error_m:.1f} mm"
        if not self.reports_success:
            return f"{MeanReturn.of(self.returns)}{more}"
        sparse = all(
            total == float(success) for total, success in zip(self.returns, self.success, strict=True)
        )
        return f"success {self.rate}{more}" + ("" if sparse else f", mean return {self.mean_return:.4g}")

    @property
    def known_rate(self) -> SuccessRate | None:
        """Success; None where the environment reports none."""
        return self.rate if self.reports_success else None

    def to_json(self) -> dict[str, Any]:
        """Every field, with the success rate; both are None where the environment reports no success. Returns
        that are not finite are None.
        """
        fields = asdict(self) | {"returns": [json_number(total) for total in self.returns]}
        if not self.reports_success:
            return {"rate": None, "mean_return": json_number(self.mean_return)} | fields | {"success": None}
        return {"rate": self.rate.to_json()} | fields


def compare(first: EvalResult, second: EvalResult) -> PairedTest:
    """Exact McNemar test on the shared seeds. Raises ConfigError if the seeds differ."""
    _check_paired(first, second)
    return paired_test(first.success, second.success)


def compare_by_report(first: EvalResult, second: EvalResult) -> PairedTest | ReturnTest:
    """`compare`, or a paired test of the returns where neither result reports success."""
    if first.reports_success or second.reports_success:
        return compare(first, second)
    _check_paired(first, second)
    return paired_return_test(first.returns, second.returns)


def _check_paired(first: EvalResult, second: EvalResult) -> None:
    """Raise ConfigError if the seeds differ."""
    if first.seeds != second.seeds:
        raise ConfigError(
            "The two evaluations ran on different seeds, so they cannot be paired. "
            "Run both with the same evaluation seed and number of episodes."
        )


def eval_seeds(eval_seed: int, n: int) -> list[int]:
    """Episode seeds of evaluation `eval_seed`; a longer list starts with the shorter one."""
    return [derive_seed("eval", eval_seed, i) for i in range(n)]


def evaluate(
    env: VecEnv,
    policy: ChunkPolicy,
    executor_factory: ExecutorFactory,
    noise: NoiseSource,
    seeds: Sequence[int],
    progress: Progress | None = None,
    watcher: Watcher | None = None,
) -> EvalResult:
    """Run `policy` on every seed once. A lane that ends early takes the next seed; every episode runs to its
    end.

    Stopping after the first n episodes would bias the rate towards short ones. Lanes without a seed at the
    end run surplus episodes that are not counted. Raises ConfigError for seeds that are empty or repeat,
    EnvError if the environment breaks the seed order.
    """
    _check_seeds(seeds)
    wall_s, cpu_s, steps = time.monotonic(), cpu_seconds(), 0
    log = _EpisodeLog.open(seeds, env.num_envs)
    executor = executor_factory(policy, env.num_envs)
    obs = env.reset(_seed_stream(seeds))
    executor.reset(obs)
    noise.reset(range(env.num_envs), log.lane_seed)
    skipping = picture_skipping(env)
    while len(log.outcomes) < len(seeds):
        if watcher is not None:
            watcher.before_step(env, obs)
        action = env.spec.action.denormalize(executor.act(noise))
        if skipping is not None and isinstance(executor, ForeseesPlans):
            skipping.skip_pictures(executor.unread())
        obs, reward, _, _, info = env.step(action)
        steps += env.num_envs
        executor.observe(obs)
        ended = torch.nonzero(info["final_mask"]).flatten()
        finished = log.record(ended, reward, info, env.spec.max_episode_steps, watcher)
        if len(ended):
            executor.reset(obs, ended)
            noise.reset(ended.tolist(), [log.lane_seed[row] for row in ended.tolist()])
        if progress is not None and finished:
            progress(finished)
    outcomes = [log.outcomes[seed] for seed in seeds]
    coverage = tuple(outcome.coverage for outcome in outcomes if outcome.coverage is not None)
    return EvalResult(
        seeds=tuple(seeds),
        success=tuple(outcome.success for outcome in outcomes),
        length=tuple(outcome.length for outcome in outcomes),
        returns=tuple(outcome.total_reward for outcome in outcomes),
        max_coverage=coverage if len(coverage) == len(seeds) else None,
        env_steps=steps,
        wall_s=time.monotonic() - wall_s,
        cpu_s=cpu_seconds() - cpu_s,
        errors_m=tuple(outcome.error_m for outcome in outcomes) if "error_m" in info else None,
        reports_success=any(outcome.reports_success for outcome in outcomes),
    )


def _check_seeds(seeds: Sequence[int]) -> None:
    if not seeds or len(set(seeds)) < len(seeds):
        raise ConfigError(f"Evaluation needs at least one seed and no seed twice, found {len(seeds)} seeds.")


def _seed_stream(seeds: Sequence[int]) -> Iterator[int]:
    """The given seeds, followed by endless ones for lanes whose episodes are not counted."""
    yield from seeds
    wanted = set(seeds)
    for i in count():
        if (surplus := derive_seed("eval surplus", i)) not in wanted:
            yield surplus


@dataclass(frozen=True, slots=True)
class _Outcome:
    success: bool
    length: int
    total_reward: float
    coverage: float | None
    error_m: float | None
    reports_success: bool


@dataclass(slots=True)
class _EpisodeLog:
    """Running seed of each lane, and outcomes of the episodes that ended."""

    wanted: frozenset[int]
    lane_seed: list[int]
    lane_length: list[int]
    lane_return: list[float]
    upcoming: Iterator[int]
    outcomes: dict[int, _Outcome] = field(default_factory=dict)

    @classmethod
    def open(cls, seeds: Sequence[int], lanes: int) -> _EpisodeLog:
        upcoming = _seed_stream(seeds)
        return cls(
            frozenset(seeds), [next(upcoming) for _ in range(lanes)], [0] * lanes, [0.0] * lanes, upcoming
        )

    def record(
        self,
        ended: Int[Tensor, " k"],
        reward: Float[Tensor, " n"],
        info: dict[str, Any],
        max_steps: int,
        watcher: Watcher | None,
    ) -> int:
        """Count one step of every lane, store ended episodes, and assign the next seeds in lane order."""
        before = len(self.outcomes)
        self.lane_length = [length + 1 for length in self.lane_length]
        self.lane_return = [
            total + step for total, step in zip(self.lane_return, reward.tolist(), strict=True)
        ]
        if watcher is not None:
            for lane, success in enumerate(info["success"].tolist()):
                watcher.after_step(lane, success)
        for lane in ended.tolist():
            self._finish(lane, info, watcher)
        if max(self.lane_length) >= max_steps:
            raise EnvError(
                f"An episode did not end after {max_steps} steps, the environment's max_episode_steps. Let "
                "the environment truncate, or correct its spec."
            )
        return len(self.outcomes) - before

    def _finish(self, lane: int, info: dict[str, Any], watcher: Watcher | None) -> None:
        seed, length = self.lane_seed[lane], self.lane_length[lane]
        if int(info["episode_seed"][lane]) != seed:
            raise EnvError(
                f"Lane {lane} ran episode seed {int(info['episode_seed'][lane])}, expected {seed}. "
                "An environment must assign seeds in lane order, or evaluations cannot be paired."
            )
        coverage = float(info["max_coverage"][lane]) if "max_coverage" in info else None
        error_m = float(info["error_m"][lane]) if "error_m" in info else math.inf
        kept_m = error_m if math.isfinite(error_m) else None
        reports = reported_success(info, lane) is not None
        total = self.lane_return[lane]
        outcome = _Outcome(bool(info["success"][lane]), length, total, coverage, kept_m, reports)
        if seed in self.wanted:
            self.outcomes[seed] = outcome
        if watcher is not None:
            watcher.episode_end(lane, seed, outcome.success, length)
        self.lane_seed[lane], self.lane_length[lane], self.lane_return[lane] = next(self.upcoming), 0, 0.0
