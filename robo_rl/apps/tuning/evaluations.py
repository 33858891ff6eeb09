"""Evaluations during a run of fine-tuning: their episodes, their cost, and the best one so far."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from policies.registry import SavedPolicy
from robo_rl.apps.tuning.report import measure
from robo_rl.conf.finetune import FinetuneVerb
from robo_rl.core.protocols import VecEnv
from robo_rl.core.seeding import derive_seed
from robo_rl.eval.rollout import EvalResult
from robo_rl.runs.progress import counting

RARELY = 4  # parts of a run between which the advised evaluations come
FEWEST = 10  # episodes below which fewer evaluations are advised instead
_LOWEST = -sys.float_info.max  # finite, because JSON has no infinity
SHARE = 0.8  # steps of the advised evaluations, as a share of those of training

Evaluate = Callable[[SavedPolicy, float], EvalResult]  # (policy, scale of its noise) -> its evaluation


def evaluations(config: FinetuneVerb, env: VecEnv, bar: Any) -> Evaluate:
    """Evaluates policies of the run, and counts the episodes in its progress bar.

    The best of many evaluations is biased upwards, so the final one uses other episodes.
    """
    own = replace(config, eval_seed=derive_seed("selection", config.eval_seed))

    def evaluate(policy: SavedPolicy, noise_scale: float) -> EvalResult:
        with counting(bar, "evaluating", own.eval_episodes, "episodes") as ended:
            return measure(policy, noise_scale, env, own, progress=ended)

    return evaluate


def too_costly(config: FinetuneVerb, env_steps: int, each: int) -> str:
    """Sentence on evaluations that will take more environment steps than training; empty if they take fewer.

    env_steps: of training. each: of one evaluation, as the first one took.
    """
    spent = _count(env_steps, config.eval_every) * each
    if spent <= env_steps:
        return ""
    every = max(config.eval_every, -(-env_steps // RARELY))
    if _episodes(config, env_steps, every, each) < FEWEST:
        every = env_steps
    episodes = _episodes(config, env_steps, every, each)
    times = _count(env_steps, config.eval_every)
    cost = (
        f"The evaluations ({times} of {config.eval_episodes} episodes) will take about {spent} of "
        f"{env_steps + spent} environment steps."
    )
    if _count(env_steps, every) * episodes >= times * config.eval_episodes:
        return cost  # a very short run has the fewest already
    return f"{cost} Fewer: eval_every={every} eval_episodes={episodes}"


def _episodes(config: FinetuneVerb, env_steps: int, every: int, each: int) -> int:
    """Most episodes of an evaluation, at least 1, with which all of them take `SHARE` of the training."""
    most = SHARE * env_steps / _count(env_steps, every) / (each / config.eval_episodes)
    return max(1, min(config.eval_episodes, int(most)))


def _count(env_steps: int, every: int) -> int:
    """Evaluations of a run: of the first and the last policy, and those between."""
    return 2 + ((env_steps - 1) // every if every else 0)


def score_of(result: EvalResult) -> tuple[float, float]:
    """Success rate, then mean return; a return that is no number is lower than all others."""
    total = result.mean_return
    return result.rate.rate, total if math.isfinite(total) else _LOWEST


@dataclass(frozen=True)
class Best:
    """Weights of the best evaluation so far; on a tie the later one."""

    env_steps: int
    score: tuple[float, float]  # of `score_of`
    weights: dict[str, Any]

    def to_state(self) -> dict[str, Any]:
        return {"env_steps": self.env_steps, "score": list(self.score), "weights": self.weights}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Best:
        rate, total = state["score"]
        return cls(int(state["env_steps"]), (float(rate), float(total)), state["weights"])
