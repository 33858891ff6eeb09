"""RECAP: labels and guidance by hand, ratio 1, kept rounds, and what is saved."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from benchmarks.bandit import Bandit, method, spread_base
from policies.base.generative import GenerativePolicy
from policies.checkpoint import load_policy, save_policy
from robo_rl.apps.tuning.denoising import chain_head, tunable
from robo_rl.core.errors import ConfigError
from robo_rl.nets.guided import BAD, GOOD, NONE, GuidedNet
from robo_rl.rl.denoising.config import DenoisingConfig
from robo_rl.rl.denoising.draws import GuidedDrawHead, labels_of
from robo_rl.rl.on_policy.head import head_inputs
from robo_rl.rl.on_policy.rollout import RolloutTransitions, joined_rounds
from tests.policies.worlds import NETS, PROCESSES, policy_of


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def guided(weight: float = 3.0, process: str = "flow", net: str = "mlp") -> GenerativePolicy:
    """A policy whose labels are learned already."""
    policy = tunable(policy_of(process, net).eval(), weight, rng())
    assert isinstance(policy, GenerativePolicy)
    assert isinstance(policy.net, GuidedNet)
    torch.nn.init.normal_(policy.net.labels.net[-1].get_parameter("weight"), std=0.1, generator=rng())
    return policy


def test_labels_by_hand() -> None:
    """Advantages 1 to 10, 30 % good: 8, 9 and 10 exceed the quantile of 7.3; a dropped one has none."""
    dropped = torch.zeros(10, dtype=torch.bool)
    dropped[[0, 9]] = True
    label = labels_of(torch.arange(1.0, 11.0), 0.3, dropped)
    assert label.tolist() == [NONE, *[BAD] * 6, GOOD, GOOD, NONE]


@pytest.mark.parametrize("weight", [1.0, 3.0])
def test_guidance_by_hand(weight: float) -> None:
    """out = plain + w (good - plain); a label as the last number gives one of the three, without guidance."""
    policy = guided(weight)
    x, t, cond = torch.randn(4, 8, 2), torch.rand(4), torch.randn(4, policy.encoder.dim)

    def labelled(label: int) -> Tensor:
        out: Tensor = policy.net(x, t, torch.cat([cond, torch.full((4, 1), float(label))], dim=1))
        return out

    plain, good = labelled(NONE), labelled(GOOD)
    assert not torch.equal(plain, good)
    assert not torch.equal(labelled(BAD), good)
    torch.testing.assert_close(policy.net(x, t, cond), plain + weight * (good - plain))
    assert torch.equal(plain, policy.net.inner(x, t, cond))  # type: ignore[operator]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("net", NETS)
@pytest.mark.parametrize("process", PROCESSES)
@pytest.mark.parametrize("draws", [5, 0], ids=["draws", "chain"])
def test_first_minibatch_has_ratio_one(draws: int, process: str, net: str, dtype: torch.dtype) -> None:
    """Promise 3: the labels of a round are drawn once, so shuffled rows repeat its first losses. Chains of a
    guided network, as when DPPO continues a policy of RECAP, repeat their log-probabilities.
    """
    policy = guided(3.0, process, net).to(dtype)
    config = DenoisingConfig(guidance=3.0) if draws else DenoisingConfig(level=0.7, min_std=0.05)
    head = chain_head(policy, policy.encoder.dim, config, 0.2, rng(1), draws)
    assert isinstance(head, GuidedDrawHead) is (draws > 0)
    features = torch.randn(6, policy.encoder.dim, generator=rng(2)).to(dtype)
    noise = torch.randn(6, 16, generator=rng(3)).to(dtype)
    with torch.no_grad():
        u = head.act(features, noise, rng(4), explore=True)
        seen = head_inputs(head, features, torch.randn(6, generator=rng(6)), rng(5))
        rows, terms = torch.arange(6 * head.terms), head.terms
        old = head.evaluate(seen[rows // terms], u[rows // terms], rows % terms).log_prob
        mixed = rows[torch.randperm(len(rows), generator=rng(7))]
        parts = [
            head.evaluate(seen[part // terms], u[part // terms], part % terms).log_prob
            for part in mixed.split(7)
        ]
    torch.testing.assert_close(
        (torch.cat(parts) - old[mixed]).exp(), torch.ones_like(old), rtol=0.0, atol=2e-5
    )
    if draws:
        assert set(seen[:, -1].tolist()) <= {0.0, 1.0, 2.0}


def test_saved_policy_keeps_labels_and_guidance(tmp_path: Path) -> None:
    """A loaded policy makes the same chunks, and can be trained further with another weight."""
    policy = guided()
    features, noise = torch.randn(5, policy.encoder.dim), torch.randn(5, 8, 2)
    save_policy(tmp_path / "policy", policy, {})
    loaded = load_policy(tmp_path / "policy")
    assert isinstance(loaded, GenerativePolicy)
    assert torch.equal(loaded.sample_from(features, noise), policy.sample_from(features, noise))
    again = tunable(loaded, 5.0, rng())
    assert isinstance(again.net, GuidedNet)
    assert again.net.weight == 5.0
    known, found = policy.net.state_dict(), again.net.state_dict()
    assert all(torch.equal(found[name], value) for name, value in known.items())


def test_initial_labels_follow_from_the_seed() -> None:
    """Equal for equal seeds, whatever PyTorch's own generator has drawn, which is left as it was."""
    base = policy_of("flow", "mlp").eval()
    before = torch.random.get_rng_state()
    first, same, other = (tunable(base, 3.0, rng(seed)).net.state_dict() for seed in (0, 0, 1))
    assert torch.equal(torch.random.get_rng_state(), before)
    assert all(torch.equal(first[name], value) for name, value in same.items())
    assert any(not torch.equal(first[name], value) for name, value in other.items())


def test_rounds_are_joined_in_order() -> None:
    """Two rounds of 2 and 1 decisions, without returns."""
    one, two = (RolloutTransitions(*[torch.full((n, 1), float(n))] * 3, torch.ones(n), None) for n in (2, 1))
    joined = joined_rounds([one, two])
    assert joined.obs.flatten().tolist() == [2.0, 2.0, 1.0]
    assert joined.returns is None


def test_kept_rounds_are_part_of_the_state() -> None:
    """A learner restored after two rounds learns the third as the one that was not stopped."""
    base = policy_of().eval()
    config = method("awr", "method.ppo.kept_rounds=2", "method.ppo.critic_warmup=0")
    whole, other = Bandit(base, config, lanes=32), Bandit(base, config, lanes=32)
    for _ in range(2):
        whole.round(10)
    other.learner.load_state_dict(whole.learner.state_dict())
    assert len(other.learner._kept) == 2
    for one in (whole, other):
        one.round(10)
    for a, b in zip(whole.learner.actor.parameters(), other.learner.actor.parameters(), strict=True):
        assert torch.equal(a, b)


def test_old_rounds_need_an_objective_without_ratios() -> None:
    """PPO's ratio is to the policy that acted."""
    with pytest.raises(ConfigError, match="kept_rounds=1"):
        Bandit(policy_of().eval(), method("fpo", "method.ppo.kept_rounds=2"), lanes=8)


def test_recap_learns_in_one_round_of_a_bandit() -> None:
    """The labels get weights, and the deployed chunks change."""
    bandit = Bandit(policy_of().eval(), method("recap", "method.ppo.critic_warmup=0"), lanes=32)
    assert isinstance(bandit.policy.net, GuidedNet)
    before = bandit.policy.sample_from(bandit.features, bandit.noise[0])
    bandit.round(10)
    assert bandit.policy.net.labels.net[-1].get_parameter("weight").abs().max() > 0.0
    assert not torch.equal(bandit.policy.sample_from(bandit.features, bandit.noise[0]), before)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "gain"), [("awr", 0.08), ("fpo", 0.1), ("recap", 0.08)])
def test_reward_of_a_bandit_rises_and_stays(name: str, gain: float) -> None:
    """40 rounds from a spread base: cloning one's own chunks of a single round loses the spread first."""
    bandit = Bandit(spread_base(policy_of()), method(name))
    before = bandit.deterministic()
    for _ in range(40):
        bandit.round(40)
    assert bandit.deterministic() > before + gain
