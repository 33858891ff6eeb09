"""XQC: joint passes of batch norms, weights of length 1, running statistics in acting and deployment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from robo_rl.core.action_map import DirectMap
from robo_rl.core.errors import ConfigError
from robo_rl.core.seeding import generator
from robo_rl.nets.deep.simba_v2 import SphereDense
from robo_rl.nets.deep.xqc import HeadBatchNorm, batch_statistics
from robo_rl.rl.off_policy.config import LearnerConfig
from robo_rl.rl.off_policy.learner import OffPolicyLearner
from tests.rl.deep_checks import bandit_miss, resumed_exactly
from tests.rl.tuners import batch

SMALL: dict[str, Any] = {
    "network": "xqc", "hidden": [8, 8], "critic_hidden": [16, 16], "critic_loss": "c51", "atoms": 11,
    "v_min": -5.0, "v_max": 5.0, "reward_scaling": "deviation", "actor_delay": 3, "alpha": 0.01,
    "auto_alpha": True, "target_entropy": -0.5, "entropy_in_target": True, "lr_end": 0.1,
}  # fmt: skip


def learner(obs: int = 4, **settings: Any) -> OffPolicyLearner:
    return OffPolicyLearner(obs, DirectMap(1), LearnerConfig(**SMALL | settings), generator("xqc"))


def norms(net: torch.nn.Module) -> list[HeadBatchNorm]:
    return [part for part in net.modules() if isinstance(part, HeadBatchNorm)]


def test_the_critics_see_both_decisions_in_one_batch() -> None:
    """The running mean of the input moves to the mean of s and s', by one hundredth; the target's stays 0."""
    made, data = learner(), batch(64)
    target, _ = made.target_of(data)
    made.critics.fit(data, target)
    seen = torch.cat([data.obs, data.next_obs]).mean(0)
    torch.testing.assert_close(norms(made.critic)[0].mean[0, 0, :4], 0.01 * seen)
    slow = made.critics.networks()["target"]
    assert norms(slow)[0].mean.eq(0.0).all()


def test_the_target_is_that_of_the_joint_pass() -> None:
    """r = 0 and discount 1: the distribution of (s', a') of the lower head, normalised with (s, a)."""
    made, data = learner(entropy_in_target=False, reward_scaling="none"), batch(64, discount=torch.ones(64))
    slow, critics = made.critics.networks()["target"], made.critics
    u = torch.zeros(64, 1)
    target = critics.backup(data, u, 0.0)
    with batch_statistics(slow, keep=False):
        both = slow.outputs(torch.cat([data.obs, data.next_obs]), torch.cat([data.critic_action, u]))[:, 64:]
    lowest = slow.q(both).argmin(0)
    expected = torch.softmax(both, -1)[lowest, torch.arange(64)]
    torch.testing.assert_close(target, expected, atol=1e-5, rtol=0.0)


def test_the_actor_learns_by_its_batch_and_acts_by_running_statistics() -> None:
    """Two updates leave the actor alone; the third moves weights and statistics. Acting moves nothing."""
    made, data = learner(), batch(64)
    before = made.weights()["actor"]
    for _ in range(2):
        made.update(data)
    assert all(torch.equal(value, before[key]) for key, value in made.weights()["actor"].items())
    made.update(data)
    torch.testing.assert_close(norms(made.actor)[0].mean[0, 0], 0.01 * data.obs.mean(0))
    after = made.weights()["actor"]
    one = made.act(data.obs[:1], data.ctx[:1], explore=True)  # a batch of one row is no batch to normalise by
    assert torch.isfinite(one).all()
    assert all(torch.equal(value, after[key]) for key, value in made.weights()["actor"].items())
    for net in (made.actor, made.critic):
        for part in net.modules():
            if isinstance(part, SphereDense):
                lengths = part.weight.norm(dim=1)
                torch.testing.assert_close(lengths, torch.ones_like(lengths))


def test_a_bandit_is_solved() -> None:
    made = learner(lr_actor=1e-2, lr_critic=1e-2, actor_delay=1, auto_alpha=False, atoms=51)
    assert bandit_miss(made, 200) < 0.19


def test_burn_in_on_returns_has_no_next_decision() -> None:
    """Monte-Carlo returns of 1, and unknown ones: Q becomes 1; the pass holds the batch alone."""
    made = learner(lr_critic=1e-2, reward_scaling="none", v_min=-2.0, v_max=2.0)
    data = batch(64, mc_return=torch.ones(64))
    data.mc_return[:3] = torch.nan
    for _ in range(60):
        made.burn_in(data, monte_carlo=True)
    with batch_statistics(made.critic, keep=False):
        q = made.critic(data.obs, data.critic_action)
    assert (q - 1.0).abs().mean() < 0.1


def test_stopped_and_resumed_equals_uninterrupted(tmp_path: Path) -> None:
    """A stop after 45 of 75 steps: weights, running statistics, moments and scales are equal."""
    settings: dict[str, Any] = {"env_steps": 90, "utd": 0.3, "learner": SMALL}
    resumed_exactly(tmp_path, (45,), 75, **settings)


def test_the_deviation_is_clipped() -> None:
    """The log standard deviation is the output itself, within -10 and 2."""
    made = learner()
    made.actor.net[-1].get_submodule("deep").get_parameter("bias").data[..., 1] = 50.0
    actor: Any = made.actor
    assert actor.distribution(torch.randn(3, 4))[1].eq(2.0).all()


@pytest.mark.parametrize(
    "settings",
    [{"gate": True}, {"conservative": 1.0}, {"actor": "deterministic", "auto_alpha": False}, {"batch": 1}],
)
def test_settings_that_do_not_fit_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="joint passes"):
        learner(**settings)


def test_a_network_without_a_hidden_layer_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"at least one hidden layer, found learner.hidden=\[\]"):
        learner(hidden=[])
