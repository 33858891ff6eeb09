"""Properties of noise steering: DSRL-SAC, DSRL-NA, LP-DS."""

from __future__ import annotations

import pytest
import torch

from robo_rl.core.action_map import LatentMap
from robo_rl.core.seeding import generator
from robo_rl.rl.off_policy.config import LearnerConfig
from robo_rl.rl.off_policy.learner import OffPolicyLearner
from tests.policies.small import flow_policy
from tests.rl.tuners import batch, build, stored
from tests.rl.worlds import SPEC


def test_rewards_are_learned_shifted() -> None:
    """DSRL's r - 1: a chunk of two steps without success has reward -1 - gamma; the log has the task's own
    return.
    """
    tuner, env, _ = build(LatentMap(4, 1, 1.5), flow_policy(SPEC), base_steps=100, learner={"gamma": 0.9})
    tuner.collector.reward.bias = -1.0
    returns = []
    while tuner.phase == "base":
        returns += [episode.total_reward for episode in tuner.advance()]
    env.close()
    store = tuner.mix["online"]
    reward, steps, ended = (stored(store, name) for name in ("reward", "steps", "terminated"))
    assert torch.allclose(reward[(steps == 2) & ~ended], torch.tensor(-1.9))
    assert torch.allclose(reward[(steps == 2) & ended], torch.tensor(-1.0))  # -1 + gamma (1 - 1)
    assert set(returns) <= {0.0, 1.0}
    assert tuner.collector.reward.largest == 1.0


def test_steering_stays_within_its_magnitude() -> None:
    """For any actor output |noise| <= 1.5 online; before, the noise is the base's own N(0, 1)."""
    tuner, env, _ = build(LatentMap(4, 1, 1.5), flow_policy(SPEC), base_steps=300, env_steps=600)
    while not tuner.done:
        tuner.advance()
    env.close()
    noise = tuner.mix["online"].data["critic_action"]
    first, last = (
        noise[:, :20],
        torch.stack(
            [lane[int(h) - 20 : int(h)] for lane, h in zip(noise, tuner.mix["online"].head, strict=True)]
        ),
    )
    assert first.abs().max() > 1.5
    assert last.abs().max() <= 1.5


@pytest.mark.parametrize("rows", [3, 32])
def test_updates_do_not_change_the_exploration_noise(rows: int) -> None:
    """Critics also draw u for batches; the AR(1) noise of three lanes must not be replaced or restarted."""
    cfg = LearnerConfig(hidden=[16], actor="deterministic", explore_correlation=0.9)
    learner = OffPolicyLearner(4, LatentMap(4, 1, 1.5), cfg, generator("x"), base=flow_policy(SPEC))
    learner.act(torch.randn(3, 4), torch.zeros(3, 0), explore=True)
    before = learner.exploration.noise.clone()
    learner.update(batch(rows, width=2))
    assert torch.equal(learner.exploration.noise, before)


def test_noise_aliased_targets_with_entropy() -> None:
    """DSRL-NA's published backup adds the entropy to Q_A's target: -alpha log pi, discounted."""
    base, data = flow_policy(SPEC), batch(width=2, discount=torch.full((32,), 0.9))
    targets = []
    for soft in (False, True):
        cfg = LearnerConfig(hidden=[16], alpha=0.5, entropy_in_target=soft)
        learner = OffPolicyLearner(4, LatentMap(4, 1, 1.5), cfg, generator("x"), base=base)
        targets.append(learner.target_of(data)[0])
    x, rng = data.next_obs, generator("x")
    learner = OffPolicyLearner(4, LatentMap(4, 1, 1.5), cfg, rng, base=base)
    _, log_prob = learner.actor.sample(x, learner.context.normal(len(x)))  # type: ignore[union-attr]
    torch.testing.assert_close(targets[1] - targets[0], -0.9 * 0.5 * log_prob)
