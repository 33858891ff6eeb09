"""Properties of learning from scratch: SAC, TD3, RLPD."""

from __future__ import annotations

import math

import torch

from robo_rl.core.action_map import DirectMap
from robo_rl.core.seeding import generator
from robo_rl.rl.off_policy.config import LearnerConfig
from robo_rl.rl.off_policy.learner import OffPolicyLearner
from tests.rl.tuners import direct, stored


def test_learning_from_nothing_begins_with_uniform_actions() -> None:
    """The warm-up of SAC, TD3 and RLPD covers the range uniformly."""
    tuner, env, _ = direct(base_steps=1500, env_steps=1501)
    while tuner.phase == "base":
        tuner.advance()
    env.close()
    actions = stored(tuner.mix["online"], "action")
    assert abs(actions.mean()) < 0.06
    assert abs(actions.std() - 1.0 / math.sqrt(3.0)) < 0.03
    assert actions.abs().max() > 0.98


def test_rlpd_moves_its_actor_once_per_twenty_critic_updates() -> None:
    """UTD 20 with actor_delay 20: one environment step is 20 critic updates, 1 actor update; half of all are
    demos.
    """
    tuner, env, _ = direct(
        stores=("online", "demo"), fractions={"online": 0.5, "demo": 0.5}, utd=20, base_steps=6, env_steps=9,
        learner={"actor_delay": 20, "heads": 10, "actor_reduce": "mean"},
    )  # fmt: skip
    moves = []
    plain = tuner.learner.update_actor
    tuner.learner.update_actor = lambda data, logs: (moves.append(data.demo.mean()), plain(data, logs))[1]  # type: ignore[method-assign]
    while not tuner.done:
        tuner.advance()
    env.close()
    assert tuner.learner.updates == 3 * 20
    assert moves == [0.5] * 3


def test_target_entropy_counts_per_dimension() -> None:
    """RLPD's -d / 2: with -0.5 and two dimensions alpha is pushed by log pi - 1."""
    cfg = LearnerConfig(hidden=[16], alpha=1.0, auto_alpha=True, target_entropy=-0.5, lr_actor=0.1)
    learner = OffPolicyLearner(4, DirectMap(2), cfg, generator("x"))
    for log_prob, up in ((0.9, False), (1.1, True)):
        multipliers = learner.multipliers
        before = float(multipliers.log_alpha.detach())
        multipliers.optimizer.restart()  # type: ignore[union-attr]
        multipliers.step(torch.zeros(8, 2), torch.zeros(8, 0), torch.tensor(-log_prob))
        assert (float(multipliers.log_alpha.detach()) > before) == up
