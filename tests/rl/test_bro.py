"""BRO: quantile critics, the mean of critics in targets, the optimistic actor, and resets."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from robo_rl.core.action_map import DirectMap
from robo_rl.core.errors import ConfigError
from robo_rl.core.seeding import generator
from robo_rl.rl.off_policy.config import LearnerConfig
from robo_rl.rl.off_policy.deep.optimistic_actor import (
    shift_divergence,
    squashed,
    unsquashed,
    upper_bound,
)
from robo_rl.rl.off_policy.learner import OffPolicyLearner
from robo_rl.rl.off_policy.losses import quantile_huber_loss
from tests.rl.deep_checks import bandit_miss, resumed_exactly, run
from tests.rl.tuners import batch, direct

SMALL: dict[str, Any] = {
    "network": "bronet", "hidden": [16], "critic_hidden": [16, 16], "critic_loss": "quantile", "atoms": 8,
    "target_reduce": "mean", "actor_reduce": "mean", "weight_decay": 1e-4, "alpha": 1.0, "auto_alpha": True,
    "target_entropy": -0.5, "entropy_in_target": True, "optimism": True,
}  # fmt: skip


def learner(**settings: Any) -> OffPolicyLearner:
    return OffPolicyLearner(4, DirectMap(1), LearnerConfig(**SMALL | settings), generator("bro"))


# Quantiles


def test_quantile_huber_of_two_quantiles_by_hand() -> None:
    """z = (0, 2) at levels 1/4 and 3/4, one target y = 1.5.

    e = (1.5, -0.5): h = (1.0, 0.125), weights 1/4 and 1 - 3/4, so the loss is 0.25 + 0.03125.
    """
    loss, info = quantile_huber_loss(
        torch.tensor([[[0.0, 2.0]]]), torch.tensor([[1.5]]), torch.tensor([0.25, 0.75])
    )
    assert loss.item() == pytest.approx(0.28125)
    assert info["critic/q"].item() == 1.0


def test_quantile_huber_is_the_formula_with_its_gradient() -> None:
    """Loss and gradient of a plain loop by autograd; rows with unknown targets add nothing."""
    torch.manual_seed(0)
    z, y, levels = torch.randn(2, 3, 4, requires_grad=True), torch.randn(3, 5), (torch.arange(4) + 0.5) / 4
    y[1] = torch.nan
    plain = torch.zeros(())
    for head in z:
        for row in (0, 2):
            for i in range(4):
                e = y[row] - head[row, i]
                h = torch.where(e.abs() <= 1.0, 0.5 * e.square(), e.abs() - 0.5)
                plain = plain + ((levels[i] - (e < 0).float()).abs() * h).mean() / 3
    loss, _ = quantile_huber_loss(z, y, levels)
    torch.testing.assert_close(loss, plain)
    torch.testing.assert_close(*(torch.autograd.grad(value, z)[0] for value in (loss, plain)))


def answer(made: OffPolicyLearner, heads: list[list[float]]) -> None:
    """Make each target head give these quantiles, whatever the input."""
    outputs = torch.tensor(heads).unsqueeze(1)
    net: Any = made.critics.networks()["target"]
    net.outputs = lambda x, action, heads=None: outputs.expand(-1, len(x), -1)


@pytest.mark.parametrize(
    ("reduce", "expected"),
    [("mean", [2.0, 3.0]), ("min", [1.5, 2.5]), ("own", [[2.5, 3.5], [1.5, 2.5]])],
)
def test_the_target_shifts_the_quantiles(reduce: str, expected: list[Any]) -> None:
    """r = 1, discount 0.5, quantiles (3, 5) and (1, 3): their mean (2, 4) gives 1 + 0.5 * (2, 4)."""
    made = learner(atoms=2, target_reduce=reduce, entropy_in_target=False)
    answer(made, [[3.0, 5.0], [1.0, 3.0]])
    target, _ = made.target_of(batch(reward=torch.ones(32), discount=torch.full((32,), 0.5)))
    wanted = torch.tensor(expected)
    torch.testing.assert_close(target, wanted.unsqueeze(-2).expand(*target.shape))


def test_the_entropy_bonus_shifts_every_quantile() -> None:
    made = learner(atoms=2)
    answer(made, [[0.0, 1.0], [0.0, 1.0]])
    target, info = made.target_of(batch(discount=torch.ones(32)))
    torch.testing.assert_close(target[:, 0].mean(), info["critic/entropy_bonus"])
    torch.testing.assert_close(target[:, 1] - target[:, 0], torch.ones(32))


@pytest.mark.parametrize("network", ["mlp", "bronet"])
def test_critics_learn_the_minimum_of_the_loss(network: str) -> None:
    """Returns of 0 and 1, p = 3/4 of them 1. Inside the width of the Huber loss its minimum at level t is
    t p / (t p + (1 - t) (1 - p)): 0.3, 0.643, 0.833 and 0.955 at 1/8, 3/8, 5/8 and 7/8.
    """
    made = learner(network=network, atoms=4, lr_critic=1e-2, optimism=False)
    data = batch(mc_return=(torch.arange(32) % 4 > 0).float())
    data = dataclasses.replace(data, obs=torch.ones(32, 4), critic_action=torch.zeros(32, 1))
    for _ in range(100):
        made.burn_in(data, monte_carlo=True)
    found = made.critic.outputs(data.obs[:1], data.critic_action[:1])[:, 0]
    expected = torch.tensor([[0.3, 0.643, 0.833, 0.955]]).expand(2, -1)
    torch.testing.assert_close(found, expected, atol=0.05, rtol=0.0)


# The actors


def test_a_bandit_is_solved() -> None:
    made = learner(alpha=0.01, auto_alpha=False, lr_actor=5e-3, lr_critic=5e-3)
    assert bandit_miss(made, 160) < 0.19


def test_the_upper_bound_by_hand() -> None:
    """Quantiles (1, 3) and (3, 3), optimism 2: means (2, 3), half distances (1, 0), bounds (4, 3)."""
    outputs = torch.tensor([[[1.0, 3.0]], [[3.0, 3.0]]])
    assert upper_bound(outputs, 2.0).item() == 3.5
    assert upper_bound(outputs, 0.0).item() == 2.5


def test_the_divergence_is_that_of_two_gaussians() -> None:
    """Shift 1 at a standard deviation of 2: 1 / 8 nat per dimension."""
    shift, log_std = torch.tensor([[1.0, 0.0]]), torch.tensor([[math.log(2.0), 0.0]])
    assert shift_divergence(shift, log_std).item() == pytest.approx(0.125)


def test_multipliers_start_at_their_values_and_follow_the_divergence() -> None:
    """Optimism 1, weight 0.25. A large KL lowers optimism and raises the weight; a small one, the reverse."""
    for value in (1.0, 0.25):
        assert squashed(torch.tensor(unsquashed(value))).item() == pytest.approx(value, rel=1e-4)
    optimist = learner().optimist
    assert optimist is not None
    for excess in (1.0, -0.05):
        optimist.renew()
        optimist._step_multipliers(torch.tensor(0.05 + excess))
        optimism, weight = squashed(optimist.raw.detach()).tolist()
        assert (optimism < 1.0) == (weight > 0.25) == (excess > 0.0)


def test_the_explorer_goes_where_the_critics_disagree() -> None:
    """Q = +-u: the mean says nothing, the bound |u| moves the explorer away from 0.2, and not the actor."""
    made = learner(optimism_std=0.01, lr_actor=1e-2)
    optimist, data = made.optimist, batch(64)
    assert optimist is not None
    made.actor.start_at(torch.tensor([0.2]))
    critic: Any = made.critic
    critic.outputs = lambda x, action, heads=None: torch.stack([action, -action]) * 5.0
    x = torch.zeros(64, 1)
    assert torch.allclose(optimist.explore(data.obs, x), made.actor.mode(data.obs))  # the shift starts at 0
    for _ in range(30):
        info = optimist.update(data, critic)
    assert (optimist.explore(data.obs, x) > made.actor.mode(data.obs) + 0.05).all()
    assert torch.allclose(made.act(data.obs, data.ctx, explore=False), torch.full((64, 1), 0.2), atol=1e-6)
    assert info["actor/optimism_kl"] > 0.0


# Resets


def networks(made: OffPolicyLearner) -> dict[str, torch.Tensor]:
    return {f"{net}.{key}": value for net, state in made.weights().items() for key, value in state.items()}


def test_a_reset_starts_everything_anew() -> None:
    """Weights differ from before, targets equal their networks, moments are 0, the temperature is 1 again."""
    made, data = learner(lr_actor=0.1), batch(64)
    for _ in range(3):
        made.update(data)
    before = networks(made)
    made.renew()
    after = networks(made)
    same = [
        key for key, value in after.items() if torch.equal(value, before[key]) and not key.startswith("gate")
    ]
    assert all(
        set(after[key].unique().tolist()) <= {0.0, 1.0} for key in same
    )  # gains, shifts and biases only
    assert all(torch.equal(after[f"target.{key}"], value) for key, value in made.critic.state_dict().items())
    assert all(not tensor.any() for each in made._optimizers().values() for tensor in each.tensors())
    assert made.multipliers.alpha.item() == 1.0
    assert made.actor(data.obs).eq(0.0).all()
    made.update(data)


def test_stopped_and_resumed_equals_uninterrupted_across_a_reset(tmp_path: Path) -> None:
    """A reset after 60 steps, a stop after 45 or 75: all weights, moments and multipliers equal at 90."""
    settings: dict[str, Any] = {"env_steps": 120, "utd": 0.5, "resets": [60], "learner": SMALL}
    assert resumed_exactly(tmp_path, (45, 75), 90, **settings).resets_done == 1


def test_resets_come_before_the_updates_of_their_step() -> None:
    """Resets after 45 and 60 of 90 steps, three lanes: the first steps of learning at or behind these."""
    tuner, env, _ = direct(env_steps=90, utd=0.0, resets=[44, 60], learner=SMALL)
    at: list[int] = []
    tuner.learner.renew = lambda: at.append(tuner.env_steps)  # type: ignore[method-assign]
    run(tuner, 90)
    env.close()
    assert at == [45, 60]


# What is refused


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"actor": "deterministic", "auto_alpha": False}, "needs learner.actor="),
        ({"heads": 1}, "heads of at least 2"),
        ({"critic_loss": "c51"}, "critic_loss=mse or quantile"),
        ({"gate": True}, "against their mean"),
        ({"optimism": False, "return_floor": True, "entropy_in_target": False}, "learns distributions"),
        ({"critic_hidden": [8, 16]}, "must be equal"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings: dict[str, Any], word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        learner(**settings)


@pytest.mark.parametrize(
    ("settings", "word"),
    [({"resets": [60, 30]}, "rising order"), ({"resets": [60], "guard_window": 10}, "guard_window=0")],
)
def test_resets_that_cannot_be_done_are_refused(settings: dict[str, Any], word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        direct(**settings)
