from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from robo_rl.core.errors import EnvError
from robo_rl.core.protocols import Obs, StepResult
from sim.registry import make_env
from sim.vec.conformance import check_vec_env
from sim.vec.workers import WorkerVecEnv
from tests.sim.vec.lanes import make

NAMES = (
    "metaworld/peg-insert-side-v3",
    "pusht/state",
    "pusht/keypoints",
    "pusht/pixels",
    "gym/Hopper-v5",
    "recall/buttons",
)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("name", NAMES)
def test_every_adapter_keeps_the_contract(name: str, workers: int) -> None:
    """Learners and evaluation rely on every clause; a violation would bias results silently."""
    with make_env(name, num_envs=3, num_workers=workers, max_episode_steps=9) as env:
        check_vec_env(env, steps=20)


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_tiny_lanes_keep_the_contract(workers: int) -> None:
    """The toy lane ends, succeeds and loses success often, which real tasks rarely do."""
    with WorkerVecEnv(make(goal=1.5), num_envs=3, num_workers=workers) as env:
        check_vec_env(env, steps=60)


@dataclass
class Broken:
    """A correct environment with one fault."""

    env: WorkerVecEnv
    fault: Callable[[StepResult], StepResult]

    def __post_init__(self) -> None:
        self.spec, self.num_envs, self.metadata = self.env.spec, self.env.num_envs, self.env.metadata

    def reset(self, seeds: Any) -> Obs:
        return self.env.reset(seeds)

    def step(self, action: Tensor) -> StepResult:
        return self.fault(self.env.step(action))

    def step_async(self, action: Tensor) -> None:
        self.env.step_async(action)

    def step_wait(self) -> StepResult:
        return self.fault(self.env.step_wait())

    def snapshot(self) -> dict[str, Any]:
        return self.env.snapshot()

    def restore(self, snapshot: Mapping[str, Any], seeds: Iterator[int] | None = None) -> Obs:
        return self.env.restore(snapshot, seeds)

    def render(self, lane: int = 0) -> Tensor:
        return self.env.render(lane)

    def close(self) -> None:
        self.env.close()


def lost_final_obs(result: StepResult) -> StepResult:
    *rest, info = result
    state = info["final_obs"]["state"]
    return (*rest, {**info, "final_obs": {**info["final_obs"], "state": torch.zeros_like(state)}})  # type: ignore[return-value]


def time_limit_as_termination(result: StepResult) -> StepResult:
    obs, reward, terminated, truncated, info = result
    return obs, reward, terminated | truncated, truncated, info


def everything_terminates(result: StepResult) -> StepResult:
    obs, reward, terminated, truncated, info = result
    return obs, reward, truncated & ~terminated, terminated, info


def wrong_seed(result: StepResult) -> StepResult:
    *rest, info = result
    return (*rest, {**info, "episode_seed": info["episode_seed"] + 1})  # type: ignore[return-value]


def success_forgets(result: StepResult) -> StepResult:
    obs, reward, terminated, truncated, info = result
    return obs, reward, terminated, truncated, {**info, "success": (reward >= 1.0) & (reward < 1.2)}


def random_reward(result: StepResult) -> StepResult:
    obs, reward, terminated, truncated, info = result
    return obs, reward + torch.rand_like(reward), terminated, truncated, info


def reused_tensor() -> Callable[[StepResult], StepResult]:
    kept: dict[str, Tensor] = {}

    def fault(result: StepResult) -> StepResult:
        obs, reward, terminated, truncated, info = result
        return obs, kept.setdefault("reward", reward.clone()).copy_(reward), terminated, truncated, info

    return fault


@pytest.mark.parametrize(
    ("fault", "clause"),
    [
        (lost_final_obs, "final_obs"),
        (time_limit_as_termination, "terminated and truncated"),
        (everything_terminates, "time limit"),
        (wrong_seed, "episode_seed"),
        (success_forgets, "success"),
        (random_reward, "pure function"),
        (reused_tensor(), "fresh"),
    ],
)
def test_the_check_finds_each_fault(fault: Callable[[StepResult], StepResult], clause: str) -> None:
    """A conformance test must detect broken environments."""
    env = Broken(WorkerVecEnv(make(goal=1.5), 3), fault)
    with pytest.raises(EnvError, match=clause):
        check_vec_env(env, steps=60)


def test_an_environment_that_never_ends_is_refused() -> None:
    """Without an end the clauses about ends were not tested, so the check fails."""
    with pytest.raises(EnvError, match="no episode ended"):
        check_vec_env(WorkerVecEnv(make(limit=1000, goal=1e9), 2), steps=20)
