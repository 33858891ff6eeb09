"""Learning by the loss of behaviour cloning (FPO++, AWR): first minibatch, bounds by hand, step 0."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from policies.base.generative import GenerativePolicy
from robo_rl.apps.tuning.denoising import chain_head, chain_map, tunable
from robo_rl.core.errors import ConfigError
from robo_rl.rl.denoising.config import DenoisingConfig
from robo_rl.rl.denoising.draws import DrawHead
from robo_rl.rl.on_policy.head import head_inputs, head_state, head_trust, next_head_round
from robo_rl.rl.on_policy.ppo import PpoConfig, asymmetric_surrogate, surrogate
from tests.policies.worlds import ENV, NETS, PROCESSES, observations, policy_of

DRAWS = 5


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def acted(policy: GenerativePolicy, reduce: str = "mean") -> tuple[DrawHead, Tensor, Tensor, Tensor]:
    """(head over a copy of the policy, features, initial noise, u) of six decisions."""
    tuned, dtype = tunable(policy), next(policy.parameters()).dtype
    head = chain_head(tuned, policy.encoder.dim, DenoisingConfig(reduce=reduce), 0.2, rng(1), DRAWS)
    assert isinstance(head, DrawHead)
    features = torch.randn(6, policy.encoder.dim, generator=rng(2)).to(dtype)
    noise = torch.randn(6, *head.map.shape, generator=rng(3)).to(dtype)
    with torch.no_grad():
        return head, features, noise, head.act(features, noise.flatten(1), rng(4), explore=True)


def stored_losses(policy: GenerativePolicy, head: DrawHead, features: Tensor, u: Tensor) -> Tensor:
    """(6, DRAWS): the loss of the base's training at every stored draw."""
    points, times = head.map.points(u), u[:, -DRAWS:]
    each = [
        policy.loss_from(features, points[:, -1], points[:, draw], times[:, draw]) for draw in range(DRAWS)
    ]
    return torch.stack(each, dim=1).detach()


def test_a_head_without_labels_and_rounds_has_one_clip_and_no_state() -> None:
    """Its input is x itself, all terms have clip 0.2 and weight 1, and a round changes nothing."""
    head, features, _, u = acted(policy_of().eval())
    assert head_inputs(head, features, torch.zeros(6), rng()) is features
    assert head_trust(head, u, torch.zeros(6, dtype=torch.long)) == (0.2, 1.0)
    assert next_head_round(head, 0.5, rng()) == head_state(head) == {}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("net", NETS)
@pytest.mark.parametrize("process", PROCESSES)
def test_first_minibatch_has_ratio_one_and_the_weights_of_its_advantages(
    process: str, net: str, dtype: torch.dtype
) -> None:
    """Promise 3: shuffled rows have the losses of sampling, so ratios are 1, and the regression is weighted
    behaviour cloning.
    """
    policy = policy_of(process, net).to(dtype).eval()
    head, features, _, u = acted(policy)
    rows = torch.randperm(6 * DRAWS, generator=rng(5))
    decision, draw = rows // DRAWS, rows % DRAWS
    now = head.evaluate(features[decision], u[decision], draw).log_prob
    old = -stored_losses(policy, head, features, u)[decision, draw]
    torch.testing.assert_close((now - old).exp(), torch.ones_like(old), rtol=0.0, atol=2e-5)
    advantage = torch.linspace(-2.0, 4.0, 6, dtype=dtype)[decision]
    config = PpoConfig(objective="regression", temperature=0.5, max_weight=20.0)
    loss, info = surrogate(config, now, old, advantage, 0.2)
    weight = (advantage / 0.5).exp().clamp(max=20.0)
    assert float(weight.max()) == 20.0
    torch.testing.assert_close(loss, -(weight * old).mean(), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(info["actor/weight"], weight.mean())
    assert float(info["actor/kl"].abs()) < 1e-6


@pytest.mark.parametrize("process", PROCESSES)
def test_start_equals_the_base(process: str) -> None:
    """Promise 1: the executed chunk is the base's for this noise, bit for bit; the draws do not change it."""
    policy = policy_of(process).eval()
    obs = observations(ENV, 6, 2)
    head = chain_head(tunable(policy), policy.encoder.dim, DenoisingConfig(), 0.2, rng(), DRAWS)
    noise = torch.randn(6, 8, 2, generator=rng(3))
    for explore in (False, True):
        with torch.no_grad():
            u = head.act(policy.features(obs), noise.flatten(1), rng(), explore=explore)
            assert torch.equal(head.map.to_chunk(u), policy.sample(obs, noise))
    assert u.shape == (6, chain_map(policy, DRAWS).dim)


def test_sum_is_the_mean_times_the_elements_of_a_chunk() -> None:
    """8 actions of 2 dimensions."""
    policy = policy_of().eval()
    log_probs = []
    for reduce in ("mean", "sum"):
        head, features, _, u = acted(policy, reduce)
        log_probs.append(head.evaluate(features, u, torch.zeros(6, dtype=torch.long)).log_prob)
    torch.testing.assert_close(log_probs[1], 16.0 * log_probs[0])


def test_draws_cover_times_and_noise() -> None:
    """Times are uniform in [0, 1), noise is standard normal, both differ between decisions."""
    policy = policy_of().eval()
    head = chain_head(tunable(policy), policy.encoder.dim, DenoisingConfig(), 0.2, rng(), 50)
    with torch.no_grad():
        u = head.act(torch.zeros(40, policy.encoder.dim), torch.zeros(40, 16), rng(), explore=True)
    times, noise = u[:, -50:], head.map.points(u)[:, :50]
    assert 0.0 <= float(times.min()) < float(times.max()) < 1.0
    assert float(times.mean()) == pytest.approx(0.5, abs=0.02)
    assert float(noise.std()) == pytest.approx(1.0, abs=0.02)
    assert len(times.flatten().unique()) > 1990


def test_asymmetric_surrogate_by_hand() -> None:
    """Clip 0.2. Good: ratio 1.5 counts as 1.2. Bad: 0.5 gives -0.5 - 0.25 / 0.4 = -1.125, and its gradient
    raises the ratio again; PPO's would be zero there.
    """
    log_prob = torch.tensor([1.5, 0.5]).log().requires_grad_()
    loss, info = asymmetric_surrogate(log_prob, torch.zeros(2), torch.tensor([1.0, -1.0]), 0.2)
    torch.testing.assert_close(loss, torch.tensor(-(1.2 - 1.125) / 2))
    loss.backward()  # type: ignore[no-untyped-call]
    assert log_prob.grad is not None
    good, bad = log_prob.grad.tolist()
    assert good == 0.0
    # -d/d(log ratio) of (-r - (r - 1)^2 / 0.4) / 2 at r = 0.5
    assert bad == pytest.approx(0.5 * 0.5 * (1.0 + 2.0 * (0.5 - 1.0) / 0.4))
    assert bad < 0.0
    assert float(info["actor/clipped"]) == 1.0


def test_regression_forgets_the_old_policy() -> None:
    """Weights are exp(A / temperature), bounded; the old log-probability is for the logs alone."""
    config = PpoConfig(objective="regression", temperature=2.0, max_weight=3.0)
    log_prob, advantage = torch.tensor([-1.0, -2.0]), torch.tensor([0.0, 10.0])
    expected = -(1.0 * -1.0 + 3.0 * -2.0) / 2
    for old in (torch.zeros(2), torch.full((2,), -5.0)):
        loss, _ = surrogate(config, log_prob, old, advantage, 0.2)
        assert float(loss) == pytest.approx(expected)
    assert math.exp(10.0 / 2.0) > 3.0


@pytest.mark.parametrize("change", [{"noise_range": [0.1, 0.2]}, {"random_step": "rollout"}])
def test_stochastic_transitions_and_draws_exclude_each_other(change: dict[str, object]) -> None:
    """The message names both remedies."""
    config = DenoisingConfig(**change)  # type: ignore[arg-type]
    policy = policy_of()
    with pytest.raises(ConfigError, match=r"map\.kind=chain"):
        chain_head(tunable(policy), policy.encoder.dim, config, 0.2, rng(), DRAWS)
