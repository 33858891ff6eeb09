from __future__ import annotations

from dataclasses import replace

import pytest

from policies.base.noise import EpisodeNoise
from policies.executor import ChunkExecutor
from robo_rl.core.errors import ConfigError
from robo_rl.eval.probe import Probe, probe
from robo_rl.eval.rollout import eval_seeds
from robo_rl.eval.stats import SuccessRate
from tests.eval.fakes import NoisyPolicy, PushButtonEnv


def make_noise(scale: float, stream: int) -> EpisodeNoise:
    return EpisodeNoise((4, 1), scale, stream)


def rates(gaussian: int, zero: int, best_of: int) -> Probe:
    return Probe(SuccessRate(gaussian, 50), SuccessRate(zero, 50), SuccessRate(best_of, 50), 8, 0, 0.0)


@pytest.mark.parametrize(
    ("probed", "method"),
    [
        (rates(33, 40, 50), "steering"),  # peg-insert: some draw solves every seed
        (rates(30, 39, 40), "residual"),  # assembly: the best draw is no better than zero noise
        (rates(20, 15, 44), "steering+residual"),
        (rates(22, 24, 30), "residual"),  # pick-place: some noise helps, on too few seeds
    ],
)
def test_recommended_method(probed: Probe, method: str) -> None:
    """Steering if the base's noise contains a success, a residual otherwise."""
    assert probed.recommend().method == method


def test_thresholds_are_parameters() -> None:
    """Callers may set the thresholds."""
    assert rates(33, 40, 45).recommend(support=0.9).method == "steering"


def test_best_of_contains_the_first_draw() -> None:
    """More draws never solve fewer seeds, and one draw equals the plain evaluation."""
    env, policy = PushButtonEnv(5), NoisyPolicy()
    one = probe(env, policy, ChunkExecutor, make_noise, episodes=14, best_of_seeds=14, draws=1)
    many = probe(env, policy, ChunkExecutor, make_noise, episodes=14, best_of_seeds=14, draws=6)
    assert one.best_of == one.gaussian == many.gaussian
    assert many.best_of.k > one.best_of.k


def test_draws_are_independent_of_each_other() -> None:
    """With symmetric noise a seed of threshold 0 fails half the time; 12 draws leave almost none unsolved."""
    probed = probe(
        PushButtonEnv(5), NoisyPolicy(), ChunkExecutor, make_noise, episodes=30, best_of_seeds=30, draws=12
    )
    assert probed.best_of.rate > 0.9 > probed.gaussian.rate


def test_a_seed_outside_the_support_stays_unsolved() -> None:
    """Noise that the policy ignores cannot help: best of n equals zero noise."""
    probed = probe(
        PushButtonEnv(5), NoisyPolicy(0.5, 0.0), ChunkExecutor, make_noise, episodes=30, best_of_seeds=30
    )
    assert probed.best_of == probed.zero == probed.gaussian
    assert probed.zero.k == sum((seed % 7) / 7 <= 0.5 for seed in eval_seeds(0, 30))
    assert probed.recommend().method == "residual"


@pytest.mark.parametrize("eval_seed", range(8))
def test_ignored_noise_is_not_recommended(eval_seed: int) -> None:
    """Best of n uses the first 10 of 30 seeds: if these are easy, the base must be measured on them, too."""
    env, policy = PushButtonEnv(5), NoisyPolicy(0.5, 0.0)
    found = probe(
        env, policy, ChunkExecutor, make_noise, eval_seed=eval_seed, episodes=30, best_of_seeds=10, draws=2
    )
    assert found.best_alone == found.best_of.rate
    assert found.recommend().method == "residual"


def test_a_probe_is_plain_json() -> None:
    """A probe survives JSON, also from older versions."""
    assert rates(1, 2, 3).to_json()["best_of"]["k"] == 3
    for found in (rates(1, 2, 3), replace(rates(1, 2, 3), alone=SuccessRate(1, 25))):
        assert Probe.from_json(found.to_json()) == found


def test_sizes_are_checked() -> None:
    """Best of n needs seeds that were evaluated."""
    with pytest.raises(ConfigError, match="best_of_seeds"):
        probe(PushButtonEnv(2), NoisyPolicy(), ChunkExecutor, make_noise, episodes=4, best_of_seeds=5)
