"""Off-policy learner: losses by hand, and which parts an update changes."""

from __future__ import annotations

from typing import Literal

import pytest
import torch

from policies.base.generative import GenerativePolicy
from robo_rl.core.action_map import DirectMap, LatentMap, ResidualMap
from robo_rl.core.errors import ConfigError
from robo_rl.core.seeding import generator
from robo_rl.data.replay import Batch
from robo_rl.nets.actor import ActorConfig, GaussianActor
from robo_rl.rl.off_policy.config import LearnerConfig
from robo_rl.rl.off_policy.learner import OffPolicyLearner
from robo_rl.rl.off_policy.losses import critic_loss, norm_bound_terms, td_target, temperature_gradient
from robo_rl.rl.off_policy.targets import subset_min
from tests.policies.small import flow_policy
from tests.rl.worlds import SPEC


def batch(size: int = 64, width: int = 1, ctx: int = 0, action: int | None = None) -> Batch:
    rng = torch.Generator().manual_seed(1)
    act = torch.rand(size, width, generator=rng) * 2.0 - 1.0
    base = torch.rand(size, ctx, generator=rng) * 2.0 - 1.0
    obs = torch.randn(size, 4, generator=rng)
    return Batch(
        obs=obs, ctx=base, critic_action=act, action=act if action is None else act[:, :action],
        reward=-(act[:, 0] - 0.5).square(), discount=torch.zeros(size), next_obs=obs, next_ctx=base,
        mc_return=torch.ones(size), return_floor=torch.full((size,), torch.nan), demo=torch.zeros(size),
    )  # fmt: skip


def learner(
    action_map: object = None,
    passes: Literal["compiled", "torch", "autograd"] = "compiled",
    **settings: object,
) -> OffPolicyLearner:
    cfg = LearnerConfig(**({"hidden": [32, 32]} | settings))  # type: ignore[arg-type]
    return OffPolicyLearner(4, action_map or DirectMap(1), cfg, generator("test"), passes=passes)  # type: ignore[arg-type]


def aliased(base: GenerativePolicy, stream: str = "na") -> OffPolicyLearner:
    """DSRL-NA over `base`."""
    cfg = LearnerConfig(hidden=[16])
    return OffPolicyLearner(4, LatentMap(4, 1, 2.0), cfg, generator(stream), base=base)


def test_targets_by_hand() -> None:
    """r + discount * V: a time-out bootstraps (0.9), a termination does not (0)."""
    out = td_target(torch.tensor([1.0, 2.0]), torch.tensor([0.9, 0.0]), torch.tensor([10.0, 10.0]))
    torch.testing.assert_close(out, torch.tensor([10.0, 2.0]))


def test_critic_heads_learn_as_if_alone() -> None:
    """Summed over heads, averaged over the batch: the gradient of one head does not depend on others."""
    q = torch.tensor([[1.0, 2.0], [5.0, 5.0]], requires_grad=True)
    loss, _ = critic_loss(q, torch.tensor([0.0, 0.0]))
    loss.backward()  # type: ignore[no-untyped-call]
    assert loss.item() == (1 + 4) / 2 + (25 + 25) / 2
    assert q.grad is not None
    assert q.grad[0].tolist() == [1.0, 2.0]


@pytest.mark.parametrize("passes", ["compiled", "torch", "autograd"])
@pytest.mark.parametrize(("reduce", "expected"), [("sum", [2.0, 6.0]), ("mean", [1.0, 3.0])])
def test_the_loss_over_critics_is_their_sum_or_mean(
    passes: Literal["compiled", "torch", "autograd"], reduce: str, expected: list[float]
) -> None:
    """Q of 1 and 3, target 0: the output biases have gradients 2 Q, or half of it as the mean of two."""
    made = learner(critic_reduce=reduce, passes=passes)
    with torch.no_grad():
        made.critic.weights[-1].zero_()
        made.critic.biases[-1].copy_(torch.tensor([1.0, 3.0]).view(2, 1, 1))
    made.critics.fit(batch(), torch.zeros(64))
    gradient = made.critics.critic_opt.gradients()[made.critic.biases[-1]]
    torch.testing.assert_close(gradient.flatten(), torch.tensor(expected))


def test_the_clip_bounds_the_loss_over_critics() -> None:
    """A bound between the gradient of the mean over ten critics and that of their sum cuts the sum alone."""

    def gradient(reduce: str, clip: float) -> torch.Tensor:
        made = learner(critic_reduce=reduce, grad_clip=clip, heads=10)
        made.critics.fit(batch(), torch.full((64,), 5.0))
        grad = made.critics.critic_opt.flat.grad
        assert grad is not None
        return grad.clone()

    free = gradient("sum", 0.0)
    bound = 0.3 * float(free.norm())
    torch.testing.assert_close(gradient("mean", bound), 0.1 * free)
    torch.testing.assert_close(gradient("sum", bound), 0.3 * free, rtol=1e-4, atol=1e-6)


def test_unknown_monte_carlo_returns_are_ignored() -> None:
    """The return of a running episode is NaN, which must not reach the weights."""
    q = torch.ones(1, 2, requires_grad=True)
    loss, _ = critic_loss(q, torch.tensor([3.0, torch.nan]))
    loss.backward()  # type: ignore[no-untyped-call]
    assert loss.item() == 2.0
    assert q.grad is not None
    assert q.grad.tolist() == [[-2.0, 0.0]]


@pytest.mark.parametrize("actor", ["gaussian", "deterministic"])
def test_one_batch_is_solved(actor: str) -> None:
    """r = -(a - 0.5)^2, no future: both learners must find 0.5 (overfit one batch before anything else)."""
    made, data = learner(actor=actor, alpha=0.001, lr_actor=3e-3, lr_critic=3e-3, actor_delay=1), batch(1024)
    for _ in range(400):
        made.update(data)
    error = (made.act(data.obs, data.ctx, explore=False) - 0.5).abs().mean()
    assert error < 0.12


def test_the_actor_starts_at_the_base() -> None:
    """u = 0 exactly, for both kinds, whatever the observation."""
    for actor in ("gaussian", "deterministic"):
        assert (
            learner(actor=actor).act(torch.randn(9, 4), torch.zeros(9, 0), explore=False).abs().max() == 0.0
        )


def test_actor_step_does_not_change_the_critics() -> None:
    """Their weights change only in the critic's step, and they keep no gradient."""
    made, data = learner(), batch()
    before = {key: value.clone() for key, value in made.critic.state_dict().items()}
    made.update_actor(data)
    assert all(torch.equal(value, before[key]) for key, value in made.critic.state_dict().items())
    assert all(parameter.grad is None for parameter in made.critic.parameters())


def test_actor_reduce_selects_the_heads() -> None:
    """Head 0 prefers u = -1, head 1 twice as strongly +1: the first alone wins with `first`, the second in
    the mean.
    """
    made = {
        reduce: learner(actor="deterministic", actor_reduce=reduce, passes="autograd")
        for reduce in ("first", "mean")
    }
    for reduce, wanted in (("first", -1.0), ("mean", 1.0)):
        critic = made[reduce].critic
        slopes = torch.tensor([-1.0, 2.0]).view(2, 1)
        critic.forward = lambda x, a, heads=None, s=slopes: (s * a[:, 0])[:heads]  # type: ignore[assignment]
        for _ in range(20):
            made[reduce].update_actor(batch())
        assert made[reduce].actor.mode(batch().obs).sign().eq(wanted).all()


def test_td3_moves_its_actor_and_its_targets_every_second_update() -> None:
    made, data = learner(actor="deterministic", actor_delay=2, target_delay=2), batch()
    flats = (made.actor_opt.flat, made._target_actor_flat, made.critics._target_flat)
    for moves in (False, True, False, True):
        before = [flat.clone() for flat in flats]
        made.update(data)
        now = flats
        assert [not torch.equal(old, new) for old, new in zip(before, now, strict=True)] == [moves] * 3


def test_sac_log_probability_agrees_with_torch() -> None:
    """tanh-squashed Gaussian against torch.distributions, away from saturation."""
    torch.manual_seed(0)
    actor = GaussianActor(ActorConfig("gaussian", 3, 2, (8,), init_std=0.3))
    torch.nn.init.normal_(actor.net[-1].weight, std=0.1)
    x, eps = torch.randn(50, 3), torch.randn(50, 2)
    u, log_prob = actor.sample(x, eps)
    mean, log_std = actor.distribution(x)
    normal = torch.distributions.Normal(mean, log_std.exp())
    squashed = torch.distributions.TransformedDistribution(normal, [torch.distributions.TanhTransform()])
    torch.testing.assert_close(log_prob, squashed.log_prob(u).sum(-1), atol=2e-3, rtol=1e-3)


def test_init_std_sets_the_exploration() -> None:
    """The initial standard deviation of exploration is a setting."""
    actor = GaussianActor(ActorConfig("gaussian", 3, 2, (8,), init_std=0.8))
    torch.testing.assert_close(actor.distribution(torch.randn(4, 3))[1].exp(), torch.full((4, 2), 0.8))


def test_the_subset_minimum_is_over_chosen_heads_only() -> None:
    """REDQ: 2 of 5 heads; the minimum of all five would be too low on average."""
    q, rng = torch.arange(5.0).unsqueeze(1), generator("test")
    seen = {subset_min(q, 2, rng).item() for _ in range(100)}
    assert seen == {0.0, 1.0, 2.0, 3.0}  # 4 is never the smaller of two


def test_the_gate_prefers_the_better_candidate() -> None:
    """With critics that want small actions, acting falls back to the base's u = 0."""
    # in torch, because machine code does not call the `forward` that is replaced here
    made = learner(ResidualMap(1, 0.5), "torch", gate=True, actor="deterministic", explore_std=1.0)
    obs, ctx = torch.randn(40, 4), torch.zeros(40, 1)
    made.critic.forward = lambda x, a, heads=None: -a.abs().sum(-1).expand(2, -1)  # type: ignore[method-assign]
    assert made.act(obs, ctx, explore=True).abs().max() == 0.0
    made.critic.forward = lambda x, a, heads=None: a.abs().sum(-1).expand(2, -1)  # type: ignore[method-assign]
    assert made.act(obs, ctx, explore=True).abs().min() > 0.0


def test_only_a_policy_that_does_not_explore_needs_the_margin(monkeypatch: pytest.MonkeyPatch) -> None:
    """One head prefers large actions and the other, less strongly, small ones: large is better in the mean
    only.
    """
    settings = {"gate": True, "gate_margin": 1.0, "actor": "deterministic", "explore_std": 1.0}
    made = learner(ResidualMap(1, 0.5), "torch", **settings)
    made.actor_opt.flat.fill_(0.3)
    obs, ctx = torch.randn(40, 4), torch.zeros(40, 1)

    def heads_say(first: float, second: float) -> None:
        slopes = torch.tensor([[first], [second]])
        monkeypatch.setattr(made.critic, "forward", lambda x, action: slopes * action.abs().sum(-1))

    heads_say(2.0, -1.0)
    assert made.act(obs, ctx, explore=True).abs().min() > 0.0
    assert made.act(obs, ctx, explore=False).abs().max() == 0.0
    heads_say(2.0, 1.0)
    assert made.act(obs, ctx, explore=False).abs().min() > 0.0


def test_correlated_noise_of_a_gaussian_actor() -> None:
    """Before the tanh, consecutive noise has correlation 0.9; its standard deviation is the actor's."""
    made = learner(ResidualMap(1, 0.5), explore_correlation=0.9, init_std=0.3)
    obs, ctx = torch.zeros(2000, 4), torch.zeros(2000, 1)
    noise = torch.stack([torch.atanh(made.act(obs, ctx, explore=True)[:, 0]) for _ in range(30)])
    assert noise.std(1) == pytest.approx(torch.full((30,), 0.3).numpy(), rel=0.08)
    assert torch.corrcoef(noise[20:22])[0, 1] == pytest.approx(0.9, abs=0.02)


def test_exploration_noise_is_correlated_with_unit_variance() -> None:
    """explore_correlation 0.9: consecutive noise has correlation 0.9 and standard deviation explore_std."""
    made = learner(ResidualMap(1, 0.5), actor="deterministic", explore_std=0.1, explore_correlation=0.9)
    obs, ctx = torch.zeros(2000, 4), torch.zeros(2000, 1)
    noise = torch.stack([made.act(obs, ctx, explore=True)[:, 0] for _ in range(30)])
    assert noise.std(1) == pytest.approx(torch.full((30,), 0.1).numpy(), rel=0.08)
    pairs = torch.stack([noise[20], noise[21]])
    assert torch.corrcoef(pairs)[0, 1] == pytest.approx(0.9, abs=0.02)
    with pytest.raises(ConfigError, match="explore_correlation"):
        learner(explore_correlation=1.0)


def test_explore_min_scale_spreads_the_noise_over_lanes() -> None:
    """explore_min_scale 0: of three lanes the first has no noise, the others half of explore_std and all of
    it.
    """
    made = learner(ResidualMap(1, 0.5), actor="deterministic", explore_std=0.2, explore_min_scale=0.0)
    obs, ctx = torch.zeros(3, 4), torch.zeros(3, 1)
    noise = torch.stack([made.act(obs, ctx, explore=True)[:, 0] for _ in range(2000)])
    assert noise[:, 0].abs().max() == 0.0  # an actor at its start answers 0
    assert noise[:, 1:].std(0) == pytest.approx([0.1, 0.2], rel=0.08)
    alone = torch.stack([made.act(obs[:1], ctx[:1], explore=True)[0, 0] for _ in range(500)])
    assert alone.std() == pytest.approx(0.2, rel=0.15)  # a single lane has to search
    with pytest.raises(ConfigError, match="explore_min_scale"):
        learner(explore_min_scale=1.5)


def test_multipliers_move_the_right_way() -> None:
    """Too little entropy raises alpha; too large a shift raises the norm's multiplier."""
    assert temperature_gradient(torch.tensor(-3.0), target_entropy=0.0) == -3.0  # entropy -3 is below 0
    term, gradient = norm_bound_terms(torch.zeros(()), torch.tensor(2.0), 1.0)
    assert gradient == -1.0  # descent raises the multiplier
    assert term == 1.0


def test_the_norm_bound_holds() -> None:
    """LP-DS: a critic that prefers the largest shift is kept near E[shift^2] = 0.25."""
    made = learner(LatentMap(2, 1, 2.0, "gaussian"), norm_bound=0.25, alpha=1e-4, lr_actor=1e-2, init_std=0.1)
    made.critic.forward = lambda x, a, heads=None: a.sum(-1).expand(2, -1)  # type: ignore[method-assign]
    data = batch(width=2, ctx=2)
    for _ in range(600):
        made.update_actor(data)
    shift = made.map.to_critic(made.act(data.obs, data.ctx, explore=False), data.ctx) - data.ctx
    assert 0.1 < shift.square().mean().item() < 0.45


def test_noise_aliased_regression_reaches_all_that_the_actor_can_emit() -> None:
    """Noise beyond N(0, I) within +-magnitude, where the published code leaves the critic unfitted."""
    made = aliased(flow_policy(SPEC))
    noise = made.critics.regression_noise(batch(4096, width=4))
    assert noise.abs().max() <= 2.0
    assert torch.histc(noise[1::2], bins=8, min=-2.0, max=2.0).min() > 800


def test_noise_aliased_decoding_is_the_base() -> None:
    """Q_A is evaluated on the chunk that the robot would execute from this noise."""
    base = flow_policy(SPEC)
    made = aliased(base)
    features, noise = torch.randn(6, 4), torch.randn(6, 4)
    with torch.no_grad():
        expected = base.sample_from(features, noise.view(6, 4, 1))[:, :2].flatten(1)
        torch.testing.assert_close(made.critics.decode(features, noise), expected)


def test_noise_aliased_learns_and_saves() -> None:
    """Updates run, Q_W follows Q_A, and the state holds both critics."""
    base = flow_policy(SPEC)
    made = aliased(base)
    data = batch(width=4, action=2)
    losses = [made.update(data)["critic/alias_loss"].item() for _ in range(150)]
    assert losses[-1] < losses[0]
    other = aliased(base, "x")
    other.load_state_dict(made.state_dict())
    made.update(data)
    other.update(data)
    assert torch.equal(made.critics.action_opt.flat, other.critics.action_opt.flat)


def test_weights_can_be_brought_back() -> None:
    """Restoring sets actor and critics; None gives the initial actor, u = 0."""
    made, data = learner(), batch()
    good = made.weights()
    for _ in range(5):
        made.update(data)
    made.load_weights(good)
    assert all(torch.equal(value, good["actor"][key]) for key, value in made.actor.state_dict().items())
    for _ in range(5):
        made.update(data)
    made.load_weights(None)
    assert made.act(data.obs, data.ctx, explore=False).abs().max() == 0.0


def test_an_unknown_actor_is_refused() -> None:
    """A wrong method.learner.actor gives one sentence."""
    with pytest.raises(ConfigError, match="gaussian"):
        learner(actor="gausian")
