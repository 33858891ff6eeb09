"""Targets of the critics by hand: soft and hard backups, smoothing, gates, burn-in, and their logs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from robo_rl.core.action_map import ActionMap, DirectMap, LatentMap, ResidualMap
from robo_rl.core.errors import ConfigError
from robo_rl.core.seeding import generator
from robo_rl.data.replay import Batch
from robo_rl.nets.critic import CriticEnsemble
from robo_rl.rl.off_policy.config import LearnerConfig
from robo_rl.rl.off_policy.learner import OffPolicyLearner
from robo_rl.rl.off_policy.noise_aliased import NoiseAliasedCritics
from tests.policies.small import flow_policy
from tests.rl.worlds import SPEC

ROWS = 256


def learner(action_map: ActionMap | None = None, **settings: Any) -> OffPolicyLearner:
    """A learner that calls its networks, so that a test can put a function in their place."""
    cfg = LearnerConfig(**({"hidden": [16]} | settings))
    return OffPolicyLearner(4, action_map or DirectMap(1), cfg, generator("targets"), passes="autograd")


def aliased(**settings: Any) -> OffPolicyLearner:
    cfg = LearnerConfig(**({"hidden": [16]} | settings))
    return OffPolicyLearner(4, LatentMap(4, 1, 2.0), cfg, generator("targets"), base=flow_policy(SPEC))


def batch(width: int = 1, ctx: int = 0, action: int = 1) -> Batch:
    rng = torch.Generator().manual_seed(1)
    obs = torch.randn(ROWS, 4, generator=rng)
    base = torch.rand(ROWS, ctx, generator=rng) - 0.5
    return Batch(
        obs=obs,
        ctx=base,
        critic_action=torch.zeros(ROWS, width),
        action=torch.zeros(ROWS, action),
        reward=torch.full((ROWS,), 2.0),
        discount=torch.full((ROWS,), 0.5),
        next_obs=obs,
        next_ctx=base,
        mc_return=torch.full((ROWS,), 7.0),
        return_floor=torch.full((ROWS,), torch.nan),
        demo=torch.zeros(ROWS),
    )


def answers(critic: CriticEnsemble, value: Callable[[Tensor], Tensor], heads: int = 2) -> None:
    """Make every head output `value(action)`."""
    critic.outputs = lambda x, a, _=None: value(a).expand(heads, -1).unsqueeze(-1)  # type: ignore[method-assign]


def test_the_hard_backup_is_reward_and_discounted_value() -> None:
    """2 + 0.5 * 10 = 7, without entropy for any alpha."""
    made = learner(alpha=5.0)
    answers(made.critics.target, lambda a: torch.full((len(a),), 10.0))
    target, info = made.target_of(batch())
    assert target.eq(7.0).all()
    assert info == {}


def test_the_soft_backup_adds_the_entropy_and_logs_it_apart() -> None:
    """Overestimation by the bonus must be visible: mean target = 7 + the logged bonus, here alpha 0.1."""
    made = learner(alpha=0.1, entropy_in_target=True)
    answers(made.critics.target, lambda a: torch.full((len(a),), 10.0))
    target, info = made.target_of(batch())
    bonus = info["critic/entropy_bonus"]
    torch.testing.assert_close(target.mean(), 7.0 + bonus)
    # A standard normal squashed by tanh has entropy 0.6 nats: 0.5 * 0.1 * 0.6
    assert 0.02 < bonus.item() < 0.04


def test_the_max_target_is_the_best_draw_of_the_lowest_critic() -> None:
    """CQL: with Q = (a, -a) the value of a draw is -|a|, and the target 2 + 0.5 * that of the smallest |a|.

    The maximum over draws of each critic first would give the smaller of max(a) and max(-a).
    """
    made, seen = learner(target_draws=5), list[Tensor]()

    def outputs(x: Tensor, a: Tensor, heads: int | None = None) -> Tensor:
        seen.append(a.view(5, ROWS))
        return torch.stack([a, -a])

    made.critics.target.outputs = outputs  # type: ignore[method-assign]
    target, _ = made.target_of(batch())
    assert target.shape == (ROWS,)
    torch.testing.assert_close(target, 2.0 - 0.5 * seen[0].abs().amin(dim=0))
    assert seen[0].std(dim=0).min() > 0.0


def test_the_max_target_counts_entropy_and_ends_with_the_episode() -> None:
    """With Q = 0 the best draw is the one of highest entropy bonus; after a termination only 2 remains."""
    made = learner(target_draws=4, alpha=0.1, entropy_in_target=True)
    answers(made.critics.target, lambda a: torch.zeros(len(a)))
    state = made.generator.get_state()
    data = replace(batch(), discount=torch.tensor([0.5, 0.0]).repeat(ROWS // 2))
    target, _ = made.target_of(data)
    made.generator.set_state(state)
    x = data.next_obs.repeat(4, 1)
    with torch.no_grad():
        _, log_prob = made.actor.sample(x, made.context.normal(4 * ROWS))
    bonus = (-0.1 * log_prob).view(4, ROWS).amax(dim=0)
    torch.testing.assert_close(target, 2.0 + data.discount * bonus)


@pytest.mark.parametrize("settings", [{"actor": "deterministic"}, {"critic_loss": "c51"}])
def test_a_max_target_needs_draws_and_values(settings: dict[str, Any]) -> None:
    """TD3 has one action; distributions have no order."""
    with pytest.raises(ConfigError, match="target_draws"):
        learner(target_draws=2, **settings)


def test_target_smoothing_is_clipped_noise_around_the_target_actor() -> None:
    """TD3 (Fujimoto et al. 2018): with std 10 and clip 0.3 the evaluated action is +-0.3 almost
    everywhere.
    """
    made, seen = learner(actor="deterministic", target_std=10.0, target_clip=0.3), list[Tensor]()
    answers(made.critics.target, lambda a: (seen.append(a), torch.zeros(len(a)))[1])
    made.target_of(batch())
    assert seen[0].abs().max() <= 0.3
    assert (seen[0].abs() > 0.299).float().mean() > 0.9


def test_target_uses_the_target_actor() -> None:
    """The target actor is still at 0 after the actor was set to 1."""
    made, seen = learner(actor="deterministic", target_std=0.0), list[Tensor]()
    made.actor_opt.flat.fill_(5.0)
    answers(made.critics.target, lambda a: (seen.append(a), torch.zeros(len(a)))[1])
    made.target_of(batch())
    assert seen[0].eq(0.0).all()


def test_the_gate_bootstraps_from_the_better_candidate() -> None:
    """IBRL and EXPO: max over base and actor. With Q = -|a - ctx| the base's own value, 0, is the target."""
    made = learner(ResidualMap(1, 0.5), actor="deterministic", gate=True, target_std=0.5)
    data = batch(ctx=1)
    answers(made.critics.target, lambda a: -(a - data.next_ctx.repeat(len(a) // ROWS, 1)).abs().sum(-1))
    target, _ = made.target_of(data)
    assert target.eq(2.0).all()


@pytest.mark.parametrize("make", [lambda: learner(LatentMap(4, 1, 2.0)), aliased])
def test_burn_in_by_bootstrapping_values_the_base(make: Callable[[], OffPolicyLearner]) -> None:
    """u = 0 in the next state, whatever the actor's output: 2 + 0.5 * Q(zero noise)."""
    made = make()
    critic = (
        made.critics.action_target if isinstance(made.critics, NoiseAliasedCritics) else made.critics.target
    )
    data = batch(4, action=2)
    zero = torch.zeros(ROWS, 4)
    asked = (
        made.critics.decode(data.next_obs, zero) if isinstance(made.critics, NoiseAliasedCritics) else zero
    )
    with torch.no_grad():
        expected = 2.0 + 0.5 * critic(data.next_obs, asked).amin(0)
    torch.testing.assert_close(made.base_target_of(data), expected)


def test_burn_in_by_returns_teaches_the_returns() -> None:
    """Monte-Carlo burn-in: Q becomes the base's return, 7, and the target networks follow."""
    made, data = learner(lr_critic=1e-2, tau=0.05), batch()
    for _ in range(300):
        made.burn_in(data, monte_carlo=True)
    assert abs(made.critic(data.obs, data.critic_action).mean() - 7.0) < 0.2
    assert abs(made.critics.target(data.obs, data.critic_action).mean() - 7.0) < 0.2


@pytest.mark.parametrize("make", [learner, aliased])
@pytest.mark.parametrize("penalty", [0.0, 5.0])
def test_return_floor_raises_targets(make: Callable[..., OffPolicyLearner], penalty: float) -> None:
    """y = 2 + 0.5 * 10 = 7: floors of 9 and 7.5 raise it; 5, an unknown one and a penalty on u do not change
    it.
    """
    floor, target = taught(make(return_floor=True, penalty=penalty))
    assert target.view(-1, 4)[0].tolist() == [9.0, 7.5, 7.0, 7.0]
    assert target.view(-1, 4).eq(target[:4]).all()
    assert floor == 0.5


@pytest.mark.parametrize("make", [learner, aliased])
def test_return_floor_is_off_by_default(make: Callable[..., OffPolicyLearner]) -> None:
    """By default the target is bootstrapped, and the log has no floor."""
    floor, target = taught(make())
    assert target.eq(7.0).all()
    assert floor is None


def taught(made: OffPolicyLearner) -> tuple[float | None, Tensor]:
    """Targets of an update whose next decision has value 10: (logged fraction of raised targets, targets)."""
    aliasing, seen = isinstance(made.critics, NoiseAliasedCritics), list[Tensor]()
    answers(
        made.critics.action_target if aliasing else made.critics.target, lambda a: torch.full((len(a),), 10.0)
    )
    fit = made.critics.fit
    made.critics.fit = lambda data, target, logs: (seen.append(target), fit(data, target, logs))[1]  # type: ignore[method-assign]
    floors = torch.tensor([9.0, 7.5, 5.0, torch.nan]).repeat(ROWS // 4)
    info = made.update(replace(batch(4, action=2) if aliasing else batch(), return_floor=floors))
    return float(info["critic/floored"]) if "critic/floored" in info else None, seen[0]


def test_noise_aliased_learning_with_soft_backup() -> None:
    """DSRL-NA with a soft backup: the same bonus as DSRL-SAC, from the same actor and draw."""
    soft, hard = aliased(alpha=0.1, entropy_in_target=True), aliased(alpha=0.1)
    soft_target, info = soft.target_of(batch(4, action=2))
    hard_target, _ = hard.target_of(batch(4, action=2))
    torch.testing.assert_close((soft_target - hard_target).mean(), info["critic/entropy_bonus"])


def test_aliased_learning_gates_by_the_critic_of_noise() -> None:
    """Q_W prefers no steering, so the base's noise is used in the target."""
    made, data = aliased(gate=True), batch(4, action=2)
    answers(made.critic, lambda w: -w.abs().sum(-1))
    with torch.no_grad():
        expected = made.base_target_of(data)
    torch.testing.assert_close(made.target_of(data)[0], expected)


def test_regression_covers_every_store_of_a_mixed_batch() -> None:
    """Batches are ordered by buffer: noise of the actor and uniform noise must reach each half."""
    made = aliased(init_std=0.01)  # the actor's own noise stays near 0
    noise = made.critics.regression_noise(batch(4, action=2))
    far = (noise.abs().amax(1) > 0.5).float()
    assert 0.4 < far[: ROWS // 2].mean() < 0.6
    assert 0.4 < far[ROWS // 2 :].mean() < 0.6


def test_exploration_noise_is_in_units_of_u() -> None:
    """sigma is in units of u: with scale 0.05, sigma 0.15 moves the action by 0.0075, not by 3 scales."""
    for scale in (0.05, 0.5):
        made = learner(ResidualMap(1, scale), actor="deterministic", explore_std=0.15)
        ctx = torch.zeros(4000, 1)
        action = made.map.to_critic(made.act(torch.randn(4000, 4), ctx, explore=True), ctx)
        assert abs(action.std() / scale - 0.15) < 0.01


def test_diagnostics_evaluate_base_and_actor() -> None:
    """The difference is the critics' estimate of the residual's gain."""
    made = learner(ResidualMap(1, 0.5), actor="deterministic")
    answers(made.critic, lambda a: a.sum(-1))
    data = batch(ctx=1)
    made.actor_opt.flat[-1] = 50.0  # the last layer's bias: u = 1 everywhere
    info = made.diagnose(data)
    torch.testing.assert_close(info["critic/q_base"], data.ctx.mean())
    torch.testing.assert_close(info["critic/q_actor"], data.ctx.mean() + 0.5)


def test_actors_leave_no_gradient_in_either_critic() -> None:
    """Also for the noise-aliased pair."""
    made = aliased(norm_bound=0.1, auto_alpha=True)
    made.update(batch(4, action=2))
    modules = (
        made.critic,
        made.critics.action_critic,
        made.critics.action_target,
        made.actor,
    )
    assert all(parameter.grad is None for module in modules for parameter in module.parameters())


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"actor_reduce": "max"}, "min | mean"),
        ({"actor_delay": 0}, "actor_delay"),
        ({"heads": 0}, "heads"),
        ({"gamma": 1.5}, "gamma"),
        ({"tau": 0.0}, "tau"),
        ({"init_std": 10.0}, "init_std"),
        ({"init_std": 1e-3}, "exp.log_std_min. = 0.0067"),
        ({"log_std_min": 3.0}, "log_std_min"),
        ({"alpha": 0.0, "auto_alpha": True}, "auto_alpha"),
        ({"return_floor": True, "entropy_in_target": True}, "entropy_in_target"),
    ],
)
def test_settings_that_make_no_learner_are_refused(settings: dict[str, Any], words: str) -> None:
    """Instead of a ZeroDivisionError during a run."""
    with pytest.raises(ConfigError, match=words):
        learner(**settings)


def test_aliasing_needs_noise_to_alias() -> None:
    """Only steering supports it."""
    with pytest.raises(ConfigError, match="steering"):
        OffPolicyLearner(4, ResidualMap(1, 0.1), LearnerConfig(), generator("x"), base=flow_policy(SPEC))
