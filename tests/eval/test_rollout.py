from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from policies.base.noise import EpisodeNoise
from policies.executor import ChunkExecutor
from robo_rl.core.errors import ConfigError, EnvError
from robo_rl.core.files.durable import read_json, write_json
from robo_rl.core.protocols import VecEnv
from robo_rl.eval.rollout import EvalResult, compare, compare_by_report, eval_seeds, evaluate
from robo_rl.runs.success_note import success_note
from tests.eval.fakes import NoisyPolicy, PushButtonEnv, episode_length


def run(lanes: int, seeds: list[int], policy: NoisyPolicy | None = None, **kwargs: Any) -> EvalResult:
    env = PushButtonEnv(lanes, **kwargs)
    return evaluate(env, policy or NoisyPolicy(), ChunkExecutor, EpisodeNoise((4, 1)), seeds)


@pytest.mark.parametrize("lanes", [1, 3, 10, 40])
def test_outcomes_do_not_depend_on_the_number_of_lanes(lanes: int) -> None:
    """Pairing: resets and noise of a seed do not depend on its lane or on other lanes."""
    seeds = eval_seeds(0, 25)
    alone, together = run(1, seeds), run(lanes, seeds)
    assert (alone.seeds, alone.success, alone.length) == (together.seeds, together.success, together.length)
    assert 0 < together.rate.k < 25


@pytest.mark.parametrize("lanes", [1, 4, 7])
def test_every_seed_once_in_seed_order(lanes: int) -> None:
    """Lengths follow from the seeds, so skipped, repeated or reordered seeds are detected."""
    seeds = eval_seeds(3, 11)
    assert run(lanes, seeds).length == tuple(map(episode_length, seeds))


def test_returns_are_the_sums_of_each_episodes_rewards() -> None:
    """The button gives reward 1 at the end of a success and 0 before; lanes must not mix."""
    result = run(4, eval_seeds(0, 20))
    assert result.returns == tuple(map(float, result.success))
    assert result.mean_return == result.rate.rate


def test_surplus_episodes_are_not_counted() -> None:
    """Ten lanes for two seeds: eight lanes run surplus seeds."""
    result = run(10, [5, 9])
    assert result.seeds == (5, 9)
    assert len(result.success) == 2
    assert result.env_steps == 10 * max(map(episode_length, (5, 9)))


def test_the_environment_gets_physical_actions() -> None:
    """Offset 1 is the upper limit: 4 N in the environment's unit, and every episode succeeds."""
    env = PushButtonEnv(2)
    result = evaluate(env, NoisyPolicy(1.0, 0.0), ChunkExecutor, EpisodeNoise((4, 1)), [1, 2, 3])
    assert torch.stack(env.actions).eq(4.0).all()
    assert result.rate.k == 3


def test_zero_noise_differs_from_gaussian_and_repeats() -> None:
    """Same seeds, other noise: the base with zero noise is another, deterministic policy."""
    seeds = eval_seeds(0, 20)
    env, policy = PushButtonEnv(4), NoisyPolicy(0.3)
    first, again = (
        evaluate(env, policy, ChunkExecutor, EpisodeNoise((4, 1), scale=0.0), seeds) for _ in range(2)
    )
    gaussian = evaluate(env, policy, ChunkExecutor, EpisodeNoise((4, 1)), seeds)
    assert first.success == again.success != gaussian.success


def test_coverage_is_reported_where_the_environment_gives_it() -> None:
    """Push-T is scored by its best coverage, not by success alone."""
    result = run(3, [1, 2, 3], NoisyPolicy(0.5, 0.0), coverage=True)
    assert result.max_coverage == (0.5, 0.5, 0.5)
    assert result.mean_coverage == 0.5
    assert run(3, [1, 2, 3]).max_coverage is None


class FarEnv(PushButtonEnv):
    """Episodes of even seeds report an error of seed cm, those of odd seeds none."""

    def step(self, action: torch.Tensor) -> Any:
        *rest, info = super().step(action)
        seed = info["episode_seed"]
        info["error_m"] = torch.where((seed % 2 == 0) & info["final_mask"], seed / 100.0, torch.inf)
        return (*rest, info)


def test_errors_are_of_the_episodes_that_have_one() -> None:
    """Seeds 2 and 4 have errors of 2 and 4 cm, a mean of 3 cm; seed 3 has none, which is not 0."""
    result = evaluate(FarEnv(2), NoisyPolicy(), ChunkExecutor, EpisodeNoise((4, 1)), [2, 3, 4])
    assert result.errors_m == (pytest.approx(0.02), None, pytest.approx(0.04))
    assert result.mean_error_m == pytest.approx(0.03)
    assert run(2, [2, 3]).errors_m is None


def test_progress_counts_each_seed_once() -> None:
    """A bar of n ends at n, also with surplus episodes."""
    counts: list[int] = []
    evaluate(
        PushButtonEnv(4), NoisyPolicy(), ChunkExecutor, EpisodeNoise((4, 1)), [1, 2, 3, 4, 5], counts.append
    )
    assert sum(counts) == 5


def test_an_environment_that_mixes_up_seeds_is_refused() -> None:
    """Otherwise noise is keyed by the wrong episode, and the pairing is lost silently."""
    with pytest.raises(EnvError, match="lane order"):
        run(2, [1, 3], shuffle_lanes=True)


def test_an_episode_without_end_is_refused() -> None:
    """Otherwise the evaluation would never return."""
    with pytest.raises(EnvError, match="did not end"):
        run(2, [4, 9], max_steps=5)


@pytest.mark.parametrize("seeds", [[], [1, 2, 1]])
def test_seeds_must_be_distinct(seeds: list[int]) -> None:
    """A repeated seed is no new evidence."""
    with pytest.raises(ConfigError, match="no seed twice"):
        run(2, seeds)


def test_comparing_needs_the_same_seeds() -> None:
    """Outcomes on other seeds cannot be paired, even when there are equally many."""
    assert compare(run(2, [1, 2]), run(3, [1, 2])).p_value == 1.0
    with pytest.raises(ConfigError, match="different seeds"):
        compare(run(2, [1, 2]), run(2, [1, 3]))


def test_a_longer_evaluation_starts_with_the_shorter_one() -> None:
    """A short evaluation of 20 episodes is the first fifth of the full one."""
    assert eval_seeds(7, 100)[:20] == eval_seeds(7, 20)
    assert not set(eval_seeds(7, 100)) & set(eval_seeds(8, 100))


def test_results_are_plain_json() -> None:
    """Metrics files hold numbers and lists only."""
    out = run(2, [1, 2]).to_json()
    assert out["rate"]["n"] == 2
    assert isinstance(out["rate"]["wilson95"], list)


@pytest.mark.parametrize("reports_success", [True, False])
def test_a_return_that_is_not_finite_can_be_written(tmp_path: Path, reports_success: bool) -> None:
    """As null: a training that diverges at its last evaluation still ends with its results."""
    lost = replace(run(2, [1, 2]), returns=(math.nan, 3.0), reports_success=reports_success)
    write_json(tmp_path / "results.json", lost.to_json())
    read = read_json(tmp_path / "results.json")
    assert read["returns"] == [None, 3.0]
    assert read.get("mean_return") is None
    test = compare_by_report(lost, replace(lost, returns=(math.inf, 3.0)))
    assert test.p_value == 1.0  # and so neither is better
    if not reports_success:
        note = success_note(lost, "gym/none", 0, 0.0)
        assert (note["mean_return"], note["n"]) == (None, 2)
        assert str(lost) == "mean return nan in 2 episodes"


def test_the_fake_fulfils_the_protocol() -> None:
    """Otherwise the tests above would not apply to real environments."""
    assert isinstance(PushButtonEnv(1), VecEnv)


def test_seeds_are_consumed_lazily() -> None:
    """The seed stream is endless; listing it would hang."""

    class Counting(PushButtonEnv):
        def reset(self, seeds: Iterator[int]) -> dict[str, torch.Tensor]:
            return super().reset(iter(seeds))

    assert evaluate(Counting(3), NoisyPolicy(), ChunkExecutor, EpisodeNoise((4, 1)), [8]).rate.n == 1
