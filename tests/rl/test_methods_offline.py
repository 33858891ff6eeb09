"""Properties of offline learning from demonstrations: Cal-QL, WSRL."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from robo_rl.core.action_map import DirectMap
from robo_rl.core.errors import ConfigError
from robo_rl.core.files.state_io import load_state, save_state
from robo_rl.core.seeding import EpisodeSeeds, generator
from robo_rl.rl.off_policy.config import LearnerConfig
from robo_rl.rl.off_policy.learner import OffPolicyLearner
from robo_rl.rl.off_policy.losses import conservative_loss
from tests.rl.tuners import batch, direct, stored


def test_conservative_term_by_hand() -> None:
    """One state, one dimension: log(2 e^1 + e^3 + e^2) - Q, the actor's 2nd action lifted from 0 to the
    return 2.
    """
    loss, _ = conservative_loss(
        q=torch.tensor([[0.5]]),
        q_random=torch.tensor([[[1.0]]]),
        q_actor=torch.tensor([[[3.0, 0.0]]]),
        log_prob=torch.zeros(1, 2),
        mc_return=torch.tensor([2.0]),
        dim=1,
    )
    expected = math.log(2.0 * math.exp(1.0) + math.exp(3.0) + math.exp(2.0)) - 0.5
    assert loss.item() == pytest.approx(expected)


def test_unknown_return_gives_plain_cql() -> None:
    """NaN: plain CQL, and a finite gradient."""
    q_actor = torch.zeros(2, 3, 4, requires_grad=True)
    args = (torch.zeros(2, 3), torch.zeros(2, 3, 4), q_actor, torch.zeros(3, 4))
    loss, _ = conservative_loss(*args, mc_return=torch.full((3,), torch.nan), dim=2)
    loss.backward()  # type: ignore[no-untyped-call]
    assert loss.item() == pytest.approx(2 * math.log(4 * 4 + 4))
    assert q_actor.grad is not None
    assert torch.isfinite(q_actor.grad).all()


def test_conservative_critic_prefers_actions_of_the_data() -> None:
    """All data at a = 0.5, return 1: the conservative critic ranks it first; the plain one may not
    distinguish actions.
    """
    ones, at = torch.ones(64), torch.full((64, 1), 0.5)
    data = batch(64, reward=ones, mc_return=ones, critic_action=at, action=at)
    cfg = LearnerConfig(hidden=[32], conservative=1.0, lr_critic=3e-3, lr_actor=0.0, alpha=0.0)
    learner = OffPolicyLearner(4, DirectMap(1), cfg, generator("x"))
    for _ in range(150):
        info = learner.update(data)
    values = [float(learner.critic(data.obs, torch.full((64, 1), a)).mean().detach()) for a in (-0.9, 0.5)]
    assert values[1] > values[0] + 0.3
    assert torch.isfinite(info["critic/conservative_gap"])


def test_offline_learning_takes_demonstrations_alone_and_no_step() -> None:
    """Before the first step there are only demonstrations; then collection begins; both parts resume
    exactly.
    """
    settings: dict[str, Any] = {
        "stores": ("online", "demo"), "fractions": {"online": 0.5, "demo": 0.5}, "offline_updates": 50,
        "learner": {"conservative": 1.0, "conservative_actions": 2},
    }  # fmt: skip
    tuner, env, _ = direct(**settings)
    assert tuner.phase == "offline"
    tuner.advance(most_updates=30)
    assert (tuner.learner.updates, tuner.env_steps, tuner.phase) == (30, 0, "offline")
    assert tuner.runner.sample().demo.min() == 1.0
    tuner.advance(most_updates=30)
    assert (tuner.learner.updates, tuner.phase) == (50, "base")
    env.close()
    with pytest.raises(ConfigError, match="demonstrations"):
        direct(offline_updates=1)


def test_stopped_while_offline_and_resumed_equals_uninterrupted(tmp_path: Path) -> None:
    """The number of offline updates is part of the state."""
    settings: dict[str, Any] = {
        "stores": ("online", "demo"),
        "fractions": {"online": 0.5, "demo": 0.5},
        "offline_updates": 20,
        "env_steps": 60,
    }
    whole, env, _ = direct(**settings)
    while not whole.done:
        whole.advance(most_updates=7)
    env.close()
    half, env, seeds = direct(**settings)
    half.advance(most_updates=7)
    save_state(tmp_path, {"tuner": half.state_dict(), "env": env.snapshot()})
    env.close()
    other, env, _ = direct(**settings)
    state = load_state(tmp_path)
    env.restore(state["env"], EpisodeSeeds(seeds.root, seeds.count))  # type: ignore[call-arg]
    other.load_state_dict(state["tuner"])
    while not other.done:
        other.advance(most_updates=7)
    env.close()
    assert torch.equal(whole.learner.critics.critic_opt.flat, other.learner.critics.critic_opt.flat)
    assert torch.equal(whole.learner.actor_opt.flat, other.learner.actor_opt.flat)


def test_wsrl_warms_up_with_the_loaded_policy_frozen() -> None:
    """The first steps use the loaded actor (here: far to the right) without learning, and the guard restores
    it.
    """
    tuner, env, _ = direct(warmup="actor", base_steps=60, learner={"init_std": 0.05}, guard_window=5)
    with torch.no_grad():
        tuner.learner.actor.net[-1].get_parameter("bias")[0] = 3.0
    tuner.mark_weights_good()
    before = tuner.learner.weights()
    while tuner.phase == "base":
        tuner.advance()
    assert stored(tuner.mix["online"], "action").min() > 0.9
    after = tuner.learner.weights()
    assert all(
        torch.equal(after[net][key], value) for net, state in before.items() for key, value in state.items()
    )
    while not tuner.done:
        tuner.advance()
    env.close()
    tuner.learner.load_weights(tuner._good)
    assert tuner.learner.actor.net[-1].get_parameter("bias")[0].item() != 0.0
