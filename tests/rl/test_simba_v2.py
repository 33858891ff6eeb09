"""SimbaV2: weights on the sphere, statistics of observations and returns, falling learning rates."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from robo_rl.core.action_map import DirectMap
from robo_rl.core.errors import ConfigError
from robo_rl.core.lanes import Lanes
from robo_rl.core.seeding import generator
from robo_rl.nets.deep.simba_v2 import SphereDense
from robo_rl.rl.off_policy.config import LearnerConfig
from robo_rl.rl.off_policy.deep.scaling import Moments, RunningScales
from robo_rl.rl.off_policy.learner import OffPolicyLearner
from tests.rl.deep_checks import bandit_miss, check_same, resumed_exactly, run
from tests.rl.tuners import batch, direct, stored

SMALL: dict[str, Any] = {
    "network": "simba_v2", "hidden": [8], "critic_hidden": [16, 16], "critic_loss": "c51", "atoms": 11,
    "v_min": -5.0, "v_max": 5.0, "normalize_obs": True, "reward_scaling": "bounded", "init_std": 0.0183,
    "alpha": 0.01, "auto_alpha": True, "target_entropy": -0.5, "entropy_in_target": True, "lr_end": 0.5,
}  # fmt: skip


def learner(**settings: Any) -> OffPolicyLearner:
    return OffPolicyLearner(4, DirectMap(1), LearnerConfig(**SMALL | settings), generator("simba"))


def scales_of(made: OffPolicyLearner) -> RunningScales:
    assert made.scales is not None
    return made.scales


# Weights


def lengths(net: nn.Module) -> list[torch.Tensor]:
    return [part.weight.norm(dim=1) for part in net.modules() if isinstance(part, SphereDense)]


def test_weights_stay_on_the_sphere() -> None:
    """After updates with large steps, every unit's weights have length 1; those of targets are averages."""
    made = learner(lr_actor=0.1, lr_critic=0.1, tau=0.5)
    data = batch(64, reward=torch.ones(64))
    before = made.critic.state_dict()["deep.dense.weight"].clone()
    for _ in range(3):
        made.update(data)
    assert not torch.allclose(made.critic.state_dict()["deep.dense.weight"], before, atol=0.01)
    for net in (made.actor, made.critic):
        found = lengths(net)
        assert len(found) >= 5
        for each in found:
            torch.testing.assert_close(each, torch.ones_like(each))
    assert any((each < 0.999).any() for each in lengths(made.critics.networks()["target"]))
    # still views of the optimiser's vector
    assert next(made.critic.parameters()).data_ptr() == made.critics.critic_opt.flat.data_ptr()


def test_a_bandit_is_solved() -> None:
    made = learner(lr_actor=1e-2, lr_critic=1e-2, auto_alpha=False, atoms=51)
    assert bandit_miss(made, 150) < 0.15


# Statistics


def test_moments_by_hand() -> None:
    """1, 3 and then 5: mean 3, variance 8 / 3. A row that does not count may hold anything."""
    moments = Moments(1, torch.device("cpu"))
    moments.count.zero_()
    moments.add(torch.tensor([[1.0], [3.0]]), torch.tensor([True, True]))
    assert moments.mean.item() == 2.0
    assert moments.variance.item() == 1.0
    moments.add(torch.tensor([[5.0], [torch.nan]]), torch.tensor([True, False]))
    assert moments.mean.item() == pytest.approx(3.0)
    assert moments.variance.item() == pytest.approx(8.0 / 3.0)
    moments.add(torch.tensor([[torch.nan]]), torch.tensor([False]))
    assert moments.mean.item() == pytest.approx(3.0)


def decision(reward: list[float], ended: list[bool], obs: float = 0.0) -> dict[str, torch.Tensor]:
    count = len(reward)
    return {
        "obs": torch.full((count, 4), obs),
        "reward": torch.tensor(reward),
        "steps": torch.ones(count),
        "terminated": torch.tensor(ended),
        "truncated": torch.zeros(count, dtype=torch.bool),
    }


def test_the_scale_of_rewards_by_hand() -> None:
    """gamma = 0.5. Lane 0: 2, then 0.5 * 2 + 2 = 3; lane 1: 4, then 1 alone, because its episode ends.

    Of 2, 4, 3 and 1 the variance is 1.25. The largest, 4, is within v_max = 5 deviations.
    """
    made = learner(gamma=0.5)
    scales, lanes = scales_of(made), Lanes.all(2)
    scales.returns.count.zero_()
    scales.add(2, lanes, decision([2.0, 4.0], [False, False]))
    scales.add(2, lanes, decision([2.0, 1.0], [False, True]))
    assert scales.running.tolist() == [3.0, 1.0]
    assert scales.reward_scale.item() == pytest.approx(math.sqrt(1.25))
    assert made.reward_unit == pytest.approx(math.sqrt(1.25))
    scales.largest.fill_(50.0)  # a rare return that would be outside the atoms
    assert scales.reward_scale.item() == pytest.approx(10.0)
    scaled = scales.scaled(batch(2, reward=torch.tensor([10.0, -5.0])))
    torch.testing.assert_close(scaled.reward, torch.tensor([1.0, -0.5]))
    plain = scales_of(learner(gamma=0.5, reward_scaling="deviation"))
    plain.largest.fill_(50.0)
    assert plain.reward_scale.item() == pytest.approx(1.0)


def test_restored_scales_are_those_that_were_saved() -> None:
    """Also the largest return, which a resumed run may not meet again."""
    one, other = scales_of(learner()), scales_of(learner())
    one.add(2, Lanes.all(2), decision([2.0, 7.0], [False, False], obs=3.0))
    other.load_state_dict(one.state_dict())
    check_same(one.state_dict(), other.state_dict())
    assert other.largest.item() == 7.0


def test_masked_lanes_count_only_where_they_are_chosen() -> None:
    """The form for a GPU computes all lanes; the statistics equal those of the chosen ones alone."""
    one, other = scales_of(learner()), scales_of(learner())
    values = decision([2.0, 7.0], [False, False], obs=3.0)
    masked = Lanes.all(2, masked=True).where(torch.tensor([True, False]))
    one.add(2, masked, values)
    other.add(2, Lanes.of(torch.tensor([0])), {name: value[:1] for name, value in values.items()})
    assert str(one.state_dict()) == str(other.state_dict())


def test_all_networks_see_the_statistics() -> None:
    """Observations of mean 3: each network has it, and a target network too; an update scales the rewards."""
    made = learner()
    for value in (2.0, 4.0):
        scales_of(made).add(1, Lanes.all(1), decision([1.0], [False], value))
    for net in (made.actor, made.target_actor, made.critic, made.critics.networks()["target"]):
        assert net.input_norm is not None
        torch.testing.assert_close(net.input_norm.mean[:4], torch.full((4,), 3.0), atol=1e-3, rtol=0.0)
        torch.testing.assert_close(net.input_norm.deviation[:4], torch.ones(4), atol=1e-3, rtol=0.0)
    made.update(batch(32))
    made.renew()
    assert made.actor.input_norm is not None
    assert made.actor.input_norm.mean[0] > 2.9


def test_statistics_are_those_of_the_replay() -> None:
    """After base and online steps: mean and deviation of all stored observations."""
    tuner, env, _ = direct(learner=SMALL, env_steps=60, utd=0.1)
    run(tuner, 60)
    env.close()
    obs, scales = stored(tuner.mix["online"], "obs").double(), scales_of(tuner.learner)
    torch.testing.assert_close(scales.obs.mean, obs.mean(0), atol=1e-4, rtol=0.0)
    torch.testing.assert_close(scales.obs.variance, obs.var(0, correction=0), atol=1e-3, rtol=0.0)


def test_stopped_and_resumed_equals_uninterrupted(tmp_path: Path) -> None:
    """A stop after 45 of 75 steps and a reset after 60: networks, statistics, moments and rates are equal."""
    settings: dict[str, Any] = {"env_steps": 90, "utd": 0.3, "resets": [60], "learner": SMALL}
    resumed_exactly(tmp_path, (45,), 75, **settings)


def test_learning_rates_fall_to_their_end() -> None:
    """Half of the first rate at the last step, three quarters half-way."""
    tuner, env, _ = direct(learner=SMALL, env_steps=120, base_steps=6, utd=0.05)
    run(tuner, 63)
    for optimizer in tuner.learner._optimizers().values():
        assert optimizer.state_dict()["param_groups"][0]["lr"] == pytest.approx(0.75 * 3e-4, rel=0.02)
    run(tuner, 120)
    env.close()
    assert tuner.learner.multipliers.optimizer is not None
    last = tuner.learner.multipliers.optimizer.state_dict()["param_groups"][0]["lr"]
    assert last == pytest.approx(0.5 * 3e-4, rel=0.03)


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"network": "mlp"}, "normalize_obs is part of the networks"),
        ({"critic_loss": "mse"}, "below learner.v_max"),
        ({"v_min": -5.0, "v_max": -1.0}, "must be positive"),
        ({"critic_hidden": [8, 16]}, "must be equal"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings: dict[str, Any], word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        learner(**settings)
