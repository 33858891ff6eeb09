"""Flow Q-learning: the head's loss by hand, its start as the base, and what is saved."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from policies.checkpoint import load_policy, save_policy
from policies.tuned.one_step import JumpHead, OneStepPolicy
from policies.tuned.residual import ResidualPolicy
from robo_rl.apps.tuning.maps import head_map
from robo_rl.core.action_map import ChainMap, ResidualMap
from robo_rl.core.errors import ConfigError
from robo_rl.core.seeding import generator
from robo_rl.nets.actor import ActorConfig, make_actor
from robo_rl.rl.off_policy.config import LearnerConfig
from robo_rl.rl.off_policy.flow_q import FlowQLearner
from robo_rl.rl.off_policy.losses import distilled_q_loss
from tests.policies.small import flow_policy
from tests.rl.tuners import batch
from tests.rl.worlds import SPEC, make_tuner, small_config


def learner(**settings: object) -> tuple[FlowQLearner, OneStepPolicy]:
    base = flow_policy(SPEC)
    cfg = LearnerConfig(hidden=[16], batch=16, **settings)  # type: ignore[arg-type]
    made = FlowQLearner(4, head_map(base), cfg, generator("x"), JumpHead(base), base)
    return made, OneStepPolicy(base, made.actor)


def test_loss_by_hand() -> None:
    """Distances 0.1 and 0.3: mean square 0.05, times 10; Q of 2 and -1: 0.5 / 1.5. 0.5 - 1/3."""
    chunk, goal = torch.tensor([[[0.1]], [[0.3]]]), torch.zeros(2, 1, 1)
    loss, info = distilled_q_loss(torch.tensor([2.0, -1.0]), chunk, goal, 10.0)
    torch.testing.assert_close(loss, torch.tensor(0.5 - 1.0 / 3.0))
    torch.testing.assert_close(info["actor/distance"], torch.tensor(0.05).sqrt())


def test_burn_in_distils_and_then_the_head_acts() -> None:
    """Until the first update of the actor the policy is the base; by then the head is near it."""
    made, policy = learner(lr_actor=3e-3)
    data, noise = batch(width=2), torch.randn(32, 4, 1)
    obs = data.obs
    base = policy.base.sample_from(obs, noise)
    far = (made.head(obs, noise) - base).square().mean()
    for _ in range(300):
        made.burn_in(data, monte_carlo=True)
    assert torch.equal(policy.sample_from(obs, noise), base)
    near = (made.head(obs, noise) - base).square().mean()
    made.update(data)
    assert not torch.equal(policy.sample_from(obs, noise), base)
    assert 0.0 < near < 0.5 * far


def test_weights_say_who_acts() -> None:
    """The best evaluation may be that of step 0: its weights leave acting to the base again."""
    made, policy = learner()
    first = made.weights()
    made.update(batch(width=2))
    later = made.weights()
    assert made.head.ready
    made.load_weights(first)
    assert not made.head.ready
    made.load_weights(later)
    assert made.head.ready
    made.load_weights(None)
    assert not made.head.ready
    assert all(
        torch.equal(a, b) for a, b in zip(policy.base.net.parameters(), made.actor.parameters(), strict=True)
    )


def test_the_guard_returns_to_the_distilled_head() -> None:
    """The base's weights are no head: one step of their flow is not its chunk."""
    tuner, env, _ = make_tuner(ChainMap(4, 1, 0, 2), replace(small_config(), guard_window=4))
    while tuner.phase != "online":
        tuner.advance()
    head: Any = tuner.learner.actor
    distilled = [value.clone() for value in head.parameters()]
    assert head.ready
    for _ in range(4):
        tuner.advance()
    guard: Any = tuner.guard
    guard.load_state_dict({"base_successes": 50, "base_episodes": 50, "recent": []})
    for _ in range(4):
        guard.add(False)
    tuner._check()
    env.close()
    assert tuner.reverts == 1
    assert head.ready
    assert all(torch.equal(a, b) for a, b in zip(head.parameters(), distilled, strict=True))


@pytest.mark.parametrize("ready", [False, True])
def test_saved_policy_acts_as_before(tmp_path: Path, ready: bool) -> None:
    """Base, head and which of them acts are saved."""
    made, policy = learner()
    made.head.ready = ready
    obs, noise = torch.randn(5, 4), torch.randn(5, 4, 1)
    save_policy(tmp_path / "policy", policy, {})
    assert torch.equal(
        load_policy(tmp_path / "policy").sample_from(obs, noise), policy.sample_from(obs, noise)
    )


def test_a_base_without_denoising_is_refused() -> None:
    """A corrected policy has no network that could become a head."""
    base, action_map = flow_policy(SPEC), ResidualMap(1, 0.2)
    actor = make_actor(ActorConfig("deterministic", 5, 1, (8,)))
    with pytest.raises(ConfigError, match="policy=generative"):
        head_map(ResidualPolicy(base, actor, action_map))


@pytest.mark.parametrize("name", ["alpha", "penalty", "norm_bound", "expectile"])
def test_settings_without_effect_are_refused(name: str) -> None:
    """FQL's paper calls the weight of the distillation alpha, so the message names ours."""
    with pytest.raises(ConfigError, match=f"no use for method.learner.{name}=0.5") as found:
        learner(**{name: 0.5})
    assert ("method.learner.distill" in str(found.value)) is (name == "alpha")
