"""Best-of-n and edited draws (IDQL, QC, EXPO): hand-worked choices, targets and resume."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from policies.checkpoint import load_policy, save_policy
from policies.tuned.best_of import BestOfPolicy
from robo_rl.core.action_map import CandidateMap
from robo_rl.core.errors import ConfigError
from robo_rl.core.seeding import generator
from robo_rl.nets.critic import CriticEnsemble
from robo_rl.rl.off_policy.candidates import CandidateLearner
from robo_rl.rl.off_policy.config import LearnerConfig
from robo_rl.rl.off_policy.losses import expectile_loss
from tests.policies.small import flow_policy
from tests.rl.tuners import batch
from tests.rl.worlds import SPEC

NONE = torch.zeros(1, 2)


def summing_critic(inputs: int) -> CriticEnsemble:
    """Q = sum of the action, for a state of one number and actions of two, if their sum is above -4."""
    critic = CriticEnsemble(inputs, [1], heads=2, layer_norm=False)
    with torch.no_grad():
        critic.weights[0].copy_(torch.tensor([[0.0], [1.0], [1.0]]).expand(2, -1, -1))
        critic.biases[0].fill_(4.0)
        critic.weights[1].fill_(1.0)
        critic.biases[1].fill_(-4.0)
    return critic


def learner(scale: float = 0.0, **settings: object) -> CandidateLearner:
    cfg = LearnerConfig(hidden=[1], layer_norm=False, heads=2, **settings)  # type: ignore[arg-type]
    made = CandidateLearner(1, CandidateMap(1, 2, 3, scale), cfg, generator("x"))
    for critic in (made.critics.critic, made.critics.target):  # type: ignore[attr-defined]
        critic.load_state_dict(summing_critic(3).state_dict())
    return made


def test_map_chooses_a_draw_and_edits_it() -> None:
    """Draws (.1, .2), (.3, .4), (.5, .6): number 2 with the edit (1, -1) of 0.1 is (.6, .5); u = 0 is number
    0.
    """
    action_map = CandidateMap(1, 2, 3, 0.1)
    ctx = torch.tensor([[0.1, 0.2, 0.3, 0.4, 0.5, 0.6]])
    u = action_map.chosen(torch.tensor([2]), torch.tensor([[1.0, -1.0]]))
    torch.testing.assert_close(action_map.to_critic(u, ctx), torch.tensor([[0.6, 0.5]]))
    torch.testing.assert_close(action_map.to_critic(torch.zeros(1, 3), ctx), ctx[:, :2])
    for index in range(3):
        chosen = action_map.chosen(torch.tensor([index]), NONE)
        torch.testing.assert_close(action_map.to_critic(chosen, ctx), ctx[:, 2 * index : 2 * index + 2])


def test_best_is_the_highest_and_the_first_on_a_tie() -> None:
    """Sums 0.3, 0.7, 0.7 and 1, 1, 1: the second, and the base's own."""
    options = torch.tensor([[[0.1, 0.2], [0.3, 0.4], [0.4, 0.3]], [[0.5, 0.5]] * 3])
    index = summing_critic(3).best_of(torch.zeros(2, 1), options)
    assert index.tolist() == [1, 0]


def test_target_is_of_the_best_next_draw() -> None:
    """Sums of the next draws .3, .7, 1.1: y = 1 + 0.9 * 1.1. With the base's own draw: 1 + 0.9 * 0.3."""
    data = batch(1, obs=1, width=2, reward=torch.ones(1), discount=torch.full((1,), 0.9),
                 ctx=torch.zeros(1, 6), next_ctx=torch.tensor([[0.1, 0.2, 0.3, 0.4, 0.5, 0.6]]))  # fmt: skip
    made = learner()
    torch.testing.assert_close(made.target_of(data)[0], torch.tensor([1.99]))
    torch.testing.assert_close(made.base_target_of(data), torch.tensor([1.27]))


def test_edits_compete_with_draws_in_acting_and_targets() -> None:
    """An actor whose edit is (tanh 1, tanh 1) of scale 0.5 raises each sum by 0.7616: 1.1 becomes 1.8616.
    One that lowers every sum is not used.
    """
    ctx = torch.tensor([[0.1, 0.2, 0.3, 0.4, 0.5, 0.6]])
    data = batch(1, obs=1, width=2, discount=torch.ones(1), ctx=ctx, next_ctx=ctx)
    made = learner(0.5, actor="deterministic", explore_std=0.0)
    for sign, value in ((1.0, 1.1 + 2 * 0.5 * 0.76159), (-1.0, 1.1)):
        for parameter in made.actor.parameters():
            torch.nn.init.zeros_(parameter)
        last = [module for module in made.actor.modules() if isinstance(module, torch.nn.Linear)][-1]
        torch.nn.init.constant_(last.bias, sign)
        chunk = made.map.to_critic(made.act(torch.zeros(1, 1), ctx, explore=False), ctx)
        torch.testing.assert_close(chunk.sum(1), torch.tensor([value]), atol=1e-4, rtol=0.0)
        torch.testing.assert_close(made.target_of(data)[0], torch.tensor([value]), atol=1e-4, rtol=0.0)


def test_expectile_loss_weighs_errors_by_their_sign() -> None:
    """tau = 0.7, Q - V = 2 and -1: (0.7 * 4 + 0.3 * 1) / 2 = 1.55."""
    torch.testing.assert_close(expectile_loss(torch.tensor([2.0, -1.0]), 0.7), torch.tensor(1.55))


def test_value_has_the_layers_of_the_critics() -> None:
    cfg = LearnerConfig(expectile=0.8, hidden=[4], critic_hidden=[8])
    made = CandidateLearner(1, CandidateMap(1, 2, 3, 0.0), cfg, generator("x"))
    assert [len(weight) for weight in made.value.parameters() if weight.ndim == 2] == [8, 1]


def test_value_tends_to_the_expectile_of_executed_chunks() -> None:
    """Q of executed chunks is 0 or 1, evenly: the 0.8-expectile solves 0.8 (1 - V) = 0.2 V, V = 0.8."""
    made = learner(expectile=0.8, lr_critic=0.02)
    action = torch.tensor([[0.0, 0.0], [0.5, 0.5]]).repeat(16, 1)
    data = batch(obs=1, width=2, critic_action=action)
    for _ in range(300):
        made._fit_value(data)
    torch.testing.assert_close(made.value(data.obs).mean(), torch.tensor(0.8), atol=0.05, rtol=0.0)
    torch.testing.assert_close(
        made.target_of(batch(1, obs=1, discount=torch.full((1,), 0.5)))[0],
        torch.tensor([0.4]), atol=0.05, rtol=0.0,
    )  # fmt: skip


def test_saved_policy_chooses_as_before(tmp_path: Path) -> None:
    """The critics, the actor and the table of noise are weights: a loaded policy makes the same chunks."""
    base, action_map = flow_policy(SPEC), CandidateMap(1, 2, 3, 0.2)
    made = CandidateLearner(4, action_map, LearnerConfig(hidden=[16]), generator("x"))
    policy = BestOfPolicy(base, made.critic, action_map, made.actor)
    obs, noise = torch.randn(5, 4), torch.randn(5, 4, 1)
    assert torch.equal(policy.sample_from(obs, noise), base.sample_from(obs, noise))  # new critics
    for critic in (made.critics.critic,):
        torch.nn.init.normal_(critic.weights[-1])
    chosen = policy.sample_from(obs, noise)
    assert not torch.equal(chosen, base.sample_from(obs, noise))
    save_policy(tmp_path / "policy", policy, {})
    assert torch.equal(load_policy(tmp_path / "policy").sample_from(obs, noise), chosen)


def test_settings_without_candidates_are_refused() -> None:
    """One draw is no choice, and a gate or atoms are of other learners."""
    with pytest.raises(ConfigError, match="count >= 2"):
        CandidateMap(1, 2, 1)
    with pytest.raises(ConfigError, match="gate=false"):
        CandidateLearner(1, CandidateMap(1, 2, 3), LearnerConfig(gate=True), generator("x"))


@pytest.mark.parametrize(
    ("scale", "settings"),
    [
        (0.1, {"entropy_in_target": True}),
        (0.1, {"target_std": 0.2}),
        (0.0, {"actor_delay": 9}),
        (0.0, {"alpha": 5.0}),
        (0.0, {"entropy_in_target": True}),
        (0.1, {"distill": 3.0}),
    ],
)
def test_settings_without_effect_are_refused(scale: float, settings: dict[str, Any]) -> None:
    """Targets take the best candidate, without entropy; without edits there is no actor."""
    (name,) = settings
    with pytest.raises(ConfigError, match=f"has no use for method.learner.{name}="):
        learner(scale, **settings)
    learner(0.1, alpha=5.0, actor_delay=2)
