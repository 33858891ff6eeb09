"""Categorical critics in a learner: targets by hand, what the critics learn, and what is refused."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import pytest
import torch

from robo_rl.core.action_map import DirectMap
from robo_rl.core.errors import ConfigError
from robo_rl.core.seeding import generator
from robo_rl.nets.critic import CriticEnsemble
from robo_rl.rl.off_policy.config import LearnerConfig
from robo_rl.rl.off_policy.learner import OffPolicyLearner
from robo_rl.rl.off_policy.losses import categorical_loss
from robo_rl.rl.off_policy.value_loss import known_only
from tests.rl.tuners import batch

FIVE = {"atoms": 5, "v_min": 0.0, "v_max": 4.0}


def learner(passes: Literal["compiled", "autograd"] = "compiled", **settings: Any) -> OffPolicyLearner:
    cfg = LearnerConfig(**{"hidden": [32, 32], "critic_loss": "c51"} | settings)
    return OffPolicyLearner(4, DirectMap(1), cfg, generator("value loss"), passes=passes)


def answers(critic: CriticEnsemble, probabilities: list[list[float]]) -> None:
    """Make head k give these probabilities of the atoms, whatever the input."""
    logits = torch.tensor(probabilities).clamp(min=1e-30).log().unsqueeze(1)
    critic.outputs = lambda x, action, heads=None: logits.expand(-1, len(x), -1)  # type: ignore[method-assign]


def slow(made: OffPolicyLearner) -> Any:
    """The target network of the critics."""
    return made.critics.networks()["target"]


LOW, HIGH = [0.0, 0.5, 0.5, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0, 0.0]  # means 1.5 and 3


@pytest.mark.parametrize("actor", ["gaussian", "deterministic"])
def test_the_lowest_head_gives_the_target(actor: str) -> None:
    """r = 1, discount 0.5, atoms 1 and 2 of the lower head: returns 1.5 and 2, so 0.25 on 1, 0.75 on 2."""
    made = learner("autograd", actor=actor, **FIVE)
    answers(slow(made), [HIGH, LOW])
    target, _ = made.target_of(batch(reward=torch.ones(32), discount=torch.full((32,), 0.5)))
    torch.testing.assert_close(target, torch.tensor([0.0, 0.25, 0.75, 0.0, 0.0]).expand(32, -1))


def test_every_head_may_learn_from_its_own_target() -> None:
    """FastSAC: r = 0, discount 1, so the target of each head is its own distribution."""
    made = learner("autograd", target_reduce="own", **FIVE)
    answers(slow(made), [HIGH, LOW])
    target, _ = made.target_of(batch(discount=torch.ones(32)))
    torch.testing.assert_close(target, torch.tensor([HIGH, LOW]).unsqueeze(1).expand(-1, 32, -1))


def test_squared_errors_may_have_own_targets_too() -> None:
    """Two heads with 1 and 3, discount 0.5: targets 0.5 and 1.5, where the minimum gives 0.5 to both."""
    values = torch.tensor([[1.0], [3.0]])
    for reduce, expected in (("own", [[0.5], [1.5]]), ("min", [0.5])):
        made = learner("autograd", critic_loss="mse", target_reduce=reduce)
        slow(made).outputs = lambda x, a: values.unsqueeze(-1).expand(-1, len(x), -1)
        target, _ = made.target_of(batch(discount=torch.full((32,), 0.5)))
        torch.testing.assert_close(target, torch.tensor(expected).expand(*target.shape))
        made.update(batch())


def test_a_termination_leaves_the_reward_alone() -> None:
    """Discount 0: all mass at r = 2.5, half on atom 2 and half on atom 3, for any next value."""
    made = learner(**FIVE)
    target, _ = made.target_of(batch(reward=torch.full((32,), 2.5)))
    torch.testing.assert_close(target, torch.tensor([0.0, 0.0, 0.5, 0.5, 0.0]).expand(32, -1))


def test_the_entropy_bonus_shifts_the_distribution() -> None:
    """A soft backup adds -alpha log pi to every return: the target's mean grows by discount times that."""
    half = batch(discount=torch.full((32,), 0.5))
    plain, _ = learner(alpha=0.1).target_of(half)
    made = learner(alpha=0.1, entropy_in_target=True)
    soft, info = made.target_of(half)
    assert made.critic.support is not None
    raised = (soft - plain) @ made.critic.support.values("cpu")
    torch.testing.assert_close(raised.mean(), info["critic/entropy_bonus"], rtol=1e-3, atol=1e-5)


def test_cross_entropy_by_hand() -> None:
    """Uniform logits over 4 atoms: log 4 for each known row; rows of zeros add nothing; heads are summed."""
    target = torch.tensor([[0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]])
    loss, info = categorical_loss(torch.zeros(3, 2, 4), torch.zeros(3, 2), target)
    assert loss.item() == pytest.approx(3 * 0.5 * torch.tensor(4.0).log().item())
    assert info["critic/target_at_bounds"] == 0.0


def test_unknown_returns_have_no_histogram() -> None:
    found = known_only(torch.tensor([1.0, torch.nan]), lambda y: torch.ones(2, 3))
    assert found.tolist() == [[1.0] * 3, [0.0] * 3]


@pytest.mark.parametrize("kind", ["c51", "hl_gauss"])
@pytest.mark.parametrize("monte_carlo", [True, False])
def test_critics_learn_the_mean_of_their_targets(kind: str, monte_carlo: bool) -> None:
    """Burn-in on returns of 0 or 1 with half each, which no input tells apart: Q becomes 0.5.

    An unknown return (NaN) changes nothing.
    """
    made = learner(critic_loss=kind, lr_critic=1e-2, tau=0.5, atoms=21, v_min=-1.0, v_max=2.0)
    value = (torch.arange(32) % 2).float()
    data = batch(mc_return=value, reward=value)
    data = dataclasses.replace(data, obs=torch.ones(32, 4), critic_action=torch.zeros(32, 1))
    if monte_carlo:
        data.mc_return[:2] = torch.nan
    for _ in range(200):
        made.burn_in(data, monte_carlo)
    assert (made.critic(data.obs, data.critic_action) - 0.5).abs().max() < 0.05


@pytest.mark.parametrize("kind", ["c51", "hl_gauss"])
@pytest.mark.parametrize("actor", ["gaussian", "deterministic"])
def test_one_batch_is_solved(actor: str, kind: str) -> None:
    """r = -(a - 0.5)^2, no future: the actor finds 0.5 by climbing the mean of the distribution."""
    made = learner(
        actor=actor, critic_loss=kind, alpha=0.001, lr_actor=3e-3, lr_critic=3e-3, v_min=-3.0, v_max=1.0
    )
    data = batch(512)
    data = dataclasses.replace(data, reward=-(data.critic_action[:, 0] - 0.5).square())
    for _ in range(300):
        made.update(data)
    assert (made.act(data.obs, data.ctx, explore=False) - 0.5).abs().mean() < 0.12


def test_settings_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ConfigError, match="v_min < v_max"):
        learner(v_min=1.0, v_max=1.0)
    with pytest.raises(ConfigError, match="return_floor bounds values"):
        learner(return_floor=True)
    assert learner(critic_loss="mse", v_min=1.0, v_max=1.0).critic.support is None


def test_critics_rebuild_from_their_arguments() -> None:
    """A residual policy is saved with its gate, which may be categorical."""
    made = learner(critic_hidden=[8], **FIVE).critic
    again = CriticEnsemble(**made.config())
    again.load_state_dict(made.state_dict())
    x, a = torch.randn(3, 4), torch.randn(3, 1)
    assert torch.equal(made(x, a), again(x, a))
    assert made.config()["hidden"] == [8]


@pytest.mark.filterwarnings("ignore:This processor has no AMX")
@pytest.mark.parametrize("kind", ["mse", "c51"])
def test_half_precision_is_for_matrix_products_alone(kind: str) -> None:
    """Q, losses, weights and moments stay float32; Q differs by rounding, and targets are close."""
    full, half = (learner(critic_loss=kind, precision=name) for name in ("float32", "bfloat16"))
    data = batch(reward=torch.rand(32), discount=torch.full((32,), 0.9))
    with half.context.products():
        found = half.target_of(data)[0]
    expected = full.target_of(data)[0]
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, expected, rtol=0.05, atol=0.02)
    for _ in range(3):
        info, other = half.update(data), full.update(data)
    assert {value.dtype for value in info.values()} == {torch.float32}
    torch.testing.assert_close(info["critic/loss"], other["critic/loss"], rtol=0.05, atol=1e-3)
    assert all(value.dtype == torch.float32 for value in half.critics.critic_opt.tensors())
