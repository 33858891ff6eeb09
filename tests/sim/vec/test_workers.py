from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from pathlib import Path

import pytest
import torch
from torch import Tensor

from robo_rl.core.errors import ConfigError, EnvError
from robo_rl.core.protocols import StepResult
from robo_rl.core.seeding import EpisodeSeeds
from sim.registry import make_env
from sim.vec.lane import Lane
from sim.vec.worker_process import imported_once
from sim.vec.workers import WorkerVecEnv
from tests.sim.vec.lanes import CountLane, make


def column(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float32)[:, None]


def roll(env: WorkerVecEnv, steps: int, seed: int = 0) -> list[StepResult]:
    generator = torch.Generator().manual_seed(seed)
    shape = (env.num_envs, env.spec.action.dim)
    env.reset(EpisodeSeeds("roll"))
    unit = [torch.rand(shape, generator=generator) * 2 - 0.7 for _ in range(steps)]
    return [env.step(env.spec.action.denormalize(action)) for action in unit]


def assert_equal(first: Sequence[StepResult], second: Sequence[StepResult]) -> None:
    for a, b in zip(first, second, strict=True):
        torch.testing.assert_close(a, b, rtol=0.0, atol=0.0)


def test_endings_by_hand() -> None:
    """Lane 0 reaches the goal of 2 in step 2 (terminated), lane 1 runs into the limit of 3 (truncated)."""
    env = WorkerVecEnv(make(limit=3, goal=2.0), 2)
    obs = env.reset(count(100))
    torch.testing.assert_close(obs["state"], torch.tensor([[100.0, 0, 0], [101, 0, 0]]))

    obs, reward, terminated, truncated, info = env.step(column(1, 0))
    assert not (terminated | truncated).any()
    assert reward.tolist() == [1.0, 0.0]
    assert info["success"].tolist() == [True, False]

    obs, _, terminated, truncated, info = env.step(column(1, 0.5))
    assert (terminated.tolist(), truncated.tolist()) == ([True, False], [False, False])
    assert info["final_mask"].tolist() == [True, False]
    # The last observation of seed 100, and the first of the next seed, 102, in the same step.
    assert info["final_obs"]["state"].tolist() == [[100, 2, 2], [101, 2, 0.5]]
    assert obs["state"].tolist() == [[102, 0, 0], [101, 2, 0.5]]
    assert info["success"].tolist() == [True, False]  # it was solved at a total of 1 and the latch remembers
    assert info["episode_seed"].tolist() == [100, 101]
    assert info["total"].tolist() == [2.0, 0.5]  # of the episode that ended, not of the new one

    obs, _, terminated, truncated, info = env.step(column(0, 0))
    assert (terminated.tolist(), truncated.tolist()) == ([False, False], [False, True])
    assert info["episode_seed"].tolist() == [102, 101]
    assert info["success"].tolist() == [False, False]  # the latch starts anew
    assert obs["state"][1].tolist() == [103, 0, 0]


def test_seeds_go_out_in_lane_order() -> None:
    """All lanes end in the same step: lane 0 gets the first new seed, whichever worker finishes first."""
    with WorkerVecEnv(make(limit=1), 4, num_workers=2) as env:
        env.reset(count())
        assert env.step(torch.zeros(4, 1))[0]["state"][:, 0].tolist() == [4, 5, 6, 7]


def test_goal_and_limit_in_the_same_step_is_a_termination() -> None:
    """A finished task must not be bootstrapped, so the task's own end has priority."""
    env = WorkerVecEnv(make(limit=2, goal=2.0), 1)
    env.reset(count())
    env.step(column(1))
    _, _, terminated, truncated, _ = env.step(column(1))
    assert (terminated.item(), truncated.item()) == (True, False)


@pytest.mark.parametrize("workers", [1, 2, 3, 5])
def test_results_do_not_depend_on_the_number_of_workers(workers: int) -> None:
    """Results must not depend on the machine."""
    whole = roll(WorkerVecEnv(make(), 5), 30)
    with WorkerVecEnv(make(), 5, workers) as env:
        assert_equal(whole, roll(env, 30))


@pytest.mark.parametrize("name", ["metaworld/assembly-v3", "pusht/pixels", "gym/Hopper-v5"])
def test_real_simulators_do_not_depend_on_workers_either(name: str) -> None:
    """Floating-point flags, library versions and object order could differ between processes, but do not."""
    whole = roll(make_env(name, 3, max_episode_steps=8), 12)
    with make_env(name, 3, num_workers=2, max_episode_steps=8) as env:
        assert_equal(whole, roll(env, 12))


def test_the_caller_computes_while_workers_simulate() -> None:
    """step_async returns at once: two workers that sleep 0.2 s per step are done 0.2 s later, not after 0.4
    s.
    """
    import time

    with WorkerVecEnv(make(SlowLane), 2, num_workers=2) as env:
        env.reset(count())
        start_s = time.monotonic()
        env.step_async(torch.zeros(2, 1))
        assert time.monotonic() - start_s < 0.1
        env.step_wait()
        assert time.monotonic() - start_s < 0.38


class SlowLane(CountLane):
    def step(self, action):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
        import time

        time.sleep(0.2)
        return super().step(action)


def test_calls_out_of_order_are_refused() -> None:
    """Waiting twice, or starting twice, would return results of another step."""
    env = WorkerVecEnv(make(), 2)
    with pytest.raises(EnvError, match="reset"):
        env.step(torch.zeros(2, 1))
    env.reset(count())
    with pytest.raises(EnvError, match="step_async"):
        env.step_wait()
    env.step_async(torch.zeros(2, 1))
    with pytest.raises(EnvError, match="step_wait"):
        env.step_async(torch.zeros(2, 1))
    env.close()
    with pytest.raises(EnvError, match="closed"):
        env.reset(count())


@pytest.mark.parametrize(
    ("action", "message"),
    [
        (torch.zeros(3, 1), r"\(2, 1\).*found \(3, 1\)"),
        (torch.zeros(2, 4), r"found \(2, 4\)"),
        (torch.tensor([[0.0], [float("nan")]]), "lane 1 is not finite"),
    ],
)
def test_impossible_actions_are_named(action: Tensor, message: str) -> None:
    """NaN must not reach a simulator, which would continue with it; the environment stays usable."""
    env = WorkerVecEnv(make(), 2)
    env.reset(count())
    with pytest.raises(EnvError, match=message):
        env.step(action)
    env.step(torch.zeros(2, 1))


def test_impossible_counts_are_refused() -> None:
    """One clear sentence instead of a crash deep inside multiprocessing."""
    for lanes, workers in ((0, 0), (2, 3), (2, -1)):
        with pytest.raises(ConfigError, match="num_envs"):
            WorkerVecEnv(make(), lanes, workers)


def test_a_lambda_cannot_go_to_workers() -> None:
    """Pickle's own message names neither the argument nor a remedy."""
    with pytest.raises(ConfigError, match="num_workers=0"):
        WorkerVecEnv(lambda: CountLane(), 2, 1)


def test_exhausted_seeds_are_reported() -> None:
    """A finite iterator is a common mistake; StopIteration would end a caller's loop silently."""
    env = WorkerVecEnv(make(limit=1), 2)
    env.reset(iter([1, 2]))
    with pytest.raises(EnvError, match="seed iterator has ended"):
        env.step(torch.zeros(2, 1))


def test_render_shows_the_requested_lane() -> None:
    """Lane 2 is in the second worker; its image is as bright as its number of steps."""
    with WorkerVecEnv(make(), 3, num_workers=2) as env:
        env.reset(count())
        env.step(torch.zeros(3, 1))
        picture = env.render(2)
        assert (picture.shape, picture.dtype) == ((4, 6, 3), torch.uint8)
        assert picture.eq(1).all()
        with pytest.raises(EnvError, match="no lane 3"):
            env.render(3)


def test_close_frees_all_resources() -> None:
    """No process, zombie, open file or shared-memory name remains."""
    WorkerVecEnv(make(), 2, 2).close()  # starts the fork server, which stays for the next environments
    files, names = open_files(), set(Path("/dev/shm").iterdir())
    env = WorkerVecEnv(make(), 4, 2)
    env.reset(count())
    pids = env.worker_pids
    assert len(pids) == 2
    assert set(Path("/dev/shm").iterdir()) == names
    env.close()
    env.close()
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]
    assert open_files() == files


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


class Builder:
    """Lane builder of another module."""

    preload = ("a_simulator",)

    def __init__(self, module: str) -> None:
        self.__module__ = module

    def __call__(self) -> Lane:
        return CountLane()


def test_the_module_of_an_environment_is_imported_once_for_all_workers() -> None:
    """It imports torch, which takes seconds. A user's module is left to the workers: an error in it would end
    the fork server.
    """
    first = ["sim.vec.worker_main", "a_simulator"]
    assert imported_once(Builder("sim.adapters.metaworld")) == [*first, "sim.adapters.metaworld"]
    assert imported_once(Builder("my_lab.lanes")) == first
    assert imported_once(make_env)[-1] == "sim.registry"
