"""PPO on denoising: log-probabilities by hand, ratio 1 on the first minibatch, trust region, plumbing."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from benchmarks.bandit import Bandit, method, spread_base
from policies.base.generative import GenerativePolicy
from robo_rl.apps.tuning.denoising import chain_head, chain_map, tunable
from robo_rl.conf.finetune import FinetuneVerb
from robo_rl.core.action_map import ChainMap
from robo_rl.core.errors import ConfigError
from robo_rl.nets.noise_net import NoiseNet
from robo_rl.rl.denoising.config import DenoisingConfig
from robo_rl.rl.denoising.head import ChainHead, active_steps, step_clips
from robo_rl.rl.on_policy.ppo import clipped_surrogate
from tests.policies.worlds import ENV, NETS, PROCESSES, observations, policy_of

KINDS = {
    "every transition": DenoisingConfig(level=0.7, min_std=0.05),
    "summed": DenoisingConfig(level=0.7, min_std=0.05, reduce="sum"),
    "one transition for each decision": DenoisingConfig(level=0.7, min_std=0.05, random_step="decision"),
    "one transition for each rollout": DenoisingConfig(level=0.7, min_std=0.05, random_step="rollout"),
    "learned noise, one ratio": DenoisingConfig(noise_range=[0.1, 0.3], ratio="chain"),
    "learned noise, last two": DenoisingConfig(noise_range=[0.1, 0.3], trained_steps=2, reduce="sum"),
}


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def head_of(
    policy: GenerativePolicy, config: DenoisingConfig, clip: float = 0.2
) -> tuple[ChainHead, GenerativePolicy, ChainMap]:
    tuned = tunable(policy)
    return chain_head(tuned, policy.encoder.dim, config, clip, rng(1)), tuned, chain_map(policy)


def acted(head: ChainHead, policy: GenerativePolicy, rows: int = 6) -> tuple[Tensor, Tensor, Tensor]:
    """(features, u, log-probability of every element and step when it was sampled)."""
    dtype, sampled = next(policy.parameters()).dtype, list[Any]()
    chains: Any = head._chains
    plain = chains.points
    chains.points = lambda *args: sampled.append(chains.sample(*args)) or plain(*args)
    features = torch.randn(rows, policy.encoder.dim, generator=rng(2)).to(dtype)
    noise = torch.randn(rows, *head.map.shape, generator=rng(3)).to(dtype)
    with torch.no_grad():
        u = head.act(features, noise.flatten(1), rng(4), explore=True)
    chains.points = plain
    assert torch.equal(head.map.points(u), sampled[0].x)
    return features, u, sampled[0].log_prob


def expected_terms(head: ChainHead, u: Tensor, log_prob: Tensor) -> Tensor:
    """(decisions * terms,), reduced as the configuration says."""
    flat = log_prob.flatten(2)
    each = flat.mean(2) if head.config.reduce == "mean" else flat.sum(2)
    if head.config.ratio == "chain":
        return each.mean(1)
    if head.config.random_step == "none":
        return each.flatten()
    return each[torch.arange(len(u)), u[:, -1].long()]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("net", NETS)
@pytest.mark.parametrize("process", PROCESSES)
def test_ratio_is_one_on_the_first_minibatch(process: str, net: str, dtype: torch.dtype) -> None:
    """Promise 3: shuffled rows, as in a minibatch, have the log-probabilities of sampling, for every kind of
    exploration.
    """
    policy = policy_of(process, net).to(dtype).eval()
    for config in KINDS.values():
        head, tuned, _ = head_of(policy, config)
        features, u, log_prob = acted(head, tuned)
        rows = torch.randperm(len(u) * head.terms, generator=rng(5))
        decision, term = rows // head.terms, rows % head.terms
        again = head.evaluate(features[decision], u[decision], term).log_prob.detach()
        ratio = (again - expected_terms(head, u, log_prob)[rows]).exp()
        torch.testing.assert_close(ratio, torch.ones_like(ratio), rtol=0.0, atol=2e-5)


@pytest.mark.parametrize("process", PROCESSES)
def test_start_equals_the_base(process: str) -> None:
    """Promise 1: the tuned copy samples the base's chunks bit for bit, and so does a chain without
    exploration.
    """
    policy = policy_of(process).eval()
    obs, noise = observations(ENV, 5, 2), torch.randn(5, 8, 2, generator=rng())
    for config in (KINDS["every transition"], KINDS["learned noise, one ratio"]):
        head, tuned, action_map = head_of(policy, config)
        with torch.no_grad():
            chunk = policy.sample(obs, noise)
            u = head.act(policy.features(obs), noise.flatten(1), rng(), explore=False)
            assert torch.equal(tuned.sample(obs, noise), chunk)
        assert torch.equal(action_map.to_chunk(u), chunk)
        assert torch.equal(action_map.points(u)[:, 0], noise)


@dataclass
class FixedChains:
    """Two transitions of a chunk of two numbers: mean x + 0.1, stds 0.5 and 0.25."""

    total: int = 2
    steps: tuple[int, ...] = (0, 1)

    def points(self, cond: Tensor, noise: Tensor, step_noise: Tensor, chosen: Tensor | None = None) -> Any:
        raise AssertionError

    def stats(self, cond: Tensor, x: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        return x + 0.1, torch.tensor([0.5, 0.25])[k].view(-1, 1, 1)


def test_log_probabilities_by_hand() -> None:
    """x: (0, 0) -> (0.6, 0.1) -> (0.7, 0.7). z = 1, 0 at std 0.5, then 0, 2 at std 0.25."""
    points = torch.tensor([[[0.0, 0.0], [0.6, 0.1], [0.7, 0.7]]])
    u = torch.cat([points.flatten(1), torch.zeros(1, 1)], dim=1)
    half_log = 0.5 * math.log(2.0 * math.pi)
    first = [-0.5 - math.log(0.5) - half_log, -math.log(0.5) - half_log]
    second = [-math.log(0.25) - half_log, -2.0 - math.log(0.25) - half_log]
    expected = {
        ("transition", "mean"): [sum(first) / 2, sum(second) / 2],
        ("transition", "sum"): [sum(first), sum(second)],
        ("chain", "mean"): [(sum(first) + sum(second)) / 4],
        ("chain", "sum"): [sum(first) + sum(second)],
    }
    for (ratio, reduce), values in expected.items():
        config = DenoisingConfig(ratio=ratio, reduce=reduce)
        head = ChainHead(FixedChains(), nn.Linear(1, 1), ChainMap(1, 2, 2, 1), config, 0.2, rng())
        assert head.terms == len(values)
        term = torch.arange(head.terms)
        found = head.evaluate(torch.zeros(len(term), 1), u.expand(len(term), -1), term)
        torch.testing.assert_close(found.log_prob, torch.tensor(values))


def test_clips_and_discounts_by_hand() -> None:
    """DPPO: three transitions, clip 0.001 to 0.01 by an exponential, advantage discounted towards the
    noise.
    """
    middle = 0.001 + 0.009 * (math.exp(1.5) - 1.0) / (math.exp(3.0) - 1.0)
    clips = step_clips(3, 0.01, 0.001, 3.0)
    torch.testing.assert_close(clips, torch.tensor([0.001, middle, 0.01]))
    assert step_clips(2, 0.2, None, 3.0).tolist() == pytest.approx([0.2, 0.2])
    config = DenoisingConfig(first_clip=0.001, discount=0.5, noise_range=[0.1, 0.2], trained_steps=3)
    head, _, action_map = head_of(policy_of(), config, clip=0.01)
    term = torch.tensor([2, 0, 1])
    clip, factor = head.trust(torch.zeros(3, action_map.dim), term)
    torch.testing.assert_close(clip, clips[term])
    assert factor.tolist() == [1.0, 0.25, 0.5]


def test_each_row_has_its_own_clip() -> None:
    """Ratios 1.5 at clips 0.1 and 0.4: a good action counts up to 1.1 and 1.4."""
    loss, _ = clipped_surrogate(
        torch.tensor([1.5, 1.5]).log(), torch.zeros(2), torch.ones(2), torch.tensor([0.1, 0.4])
    )
    torch.testing.assert_close(loss, torch.tensor(-1.25))


def test_dual_clip_bounds_the_loss_of_a_bad_action() -> None:
    """Ratio 10, A = -1: -10 without the bound, -3 with it. A good action is as before."""
    ratio, advantage = torch.tensor([10.0, 10.0]).log(), torch.tensor([-1.0, 1.0])
    plain, _ = clipped_surrogate(ratio, torch.zeros(2), advantage, 0.2)
    bounded, _ = clipped_surrogate(ratio, torch.zeros(2), advantage, 0.2, 3.0)
    torch.testing.assert_close(plain, torch.tensor((10.0 - 1.2) / 2))
    torch.testing.assert_close(bounded, torch.tensor((3.0 - 1.2) / 2))


def test_steps_on_the_floor_are_out_of_the_ratio() -> None:
    """DDIM's last std is 0: no term, and no noise. A floor above all of them leaves nothing to learn."""
    policy = policy_of("diffusion")
    stds = policy.process.transitions(5, 1.0).std
    head, tuned, action_map = head_of(policy, DenoisingConfig(level=1.0, min_std=float(stds[3]) + 1e-4))
    assert head.terms == 3
    features, u, _ = acted(head, tuned)
    points = action_map.points(u)
    still = tuned.process.transitions(5)
    for k in (3, 4):
        with torch.no_grad():
            out = tuned.net(points[:, k], still.time(k, points[:, k]), features)
        assert torch.equal(points[:, k + 1], still.stats(out, points[:, k], k)[0])
    with pytest.raises(ConfigError, match=r"min_std=5.0 or more"):
        head_of(policy, DenoisingConfig(min_std=5.0))


def test_one_transition_is_drawn() -> None:
    """Each decision explores the transition that its u names; a rollout keeps one and the next draws anew."""
    policy = policy_of()
    head, tuned, _ = head_of(policy, KINDS["one transition for each decision"])
    _, u, log_prob = acted(head, tuned, rows=40)
    drawn = u[:, -1].long()
    assert drawn.unique().tolist() == list(range(len(head._steps)))
    explored = (log_prob.flatten(2).abs().sum(2) > 0).float()
    assert torch.equal(explored, nn.functional.one_hot(drawn, len(head._steps)).float())
    head, tuned, _ = head_of(policy, KINDS["one transition for each rollout"])
    seen, generator = set[float](), rng(9)
    for _ in range(20):
        _, u, _ = acted(head, tuned)
        assert len(u[:, -1].unique()) == 1
        seen.add(float(u[0, -1]))
        head.next_round(0.0, generator)
    assert len(seen) == len(head._steps)


def test_number_of_active_transitions_by_hand() -> None:
    """Four transitions that grow over half of the training: 1, 2, 3, 4 from 0, 1/8, 2/8, 3/8 on."""
    shares = [0.0, 0.124, 0.125, 0.25, 0.375, 0.5, 1.0]
    assert [active_steps(4, 0.5, share) for share in shares] == [1, 1, 2, 3, 4, 4, 4]
    assert active_steps(4, 0.0, 0.0) == 4


@pytest.mark.parametrize("process", ["flow", "diffusion"])
@pytest.mark.parametrize("ratio", ["transition", "chain"])
def test_transitions_grow_from_the_last_one(process: str, ratio: str) -> None:
    """Earlier transitions follow the deterministic path and are in no ratio, which is 1 in every round. The
    state holds how many there are.
    """
    policy, config = (
        policy_of(process),
        DenoisingConfig(level=0.7, min_std=0.05, ratio=ratio, progressive=0.5),
    )
    head, tuned, action_map = head_of(policy, config)
    total = len(head._steps)
    for share, active in ((0.0, 1), (0.25, 1 + total // 2), (1.0, total)):
        head.next_round(share, rng())
        first = total - active
        assert head.terms == (1 if ratio == "chain" else active)
        features, u, log_prob = acted(head, tuned)
        each = log_prob.flatten(2).mean(2)
        assert (each[:, :first] == 0.0).all()
        assert (each[:, first:] != 0.0).all()
        expected = each[:, first:].mean(1) if ratio == "chain" else each[:, first:].flatten()
        rows = torch.arange(len(expected))
        again = head.evaluate(features[rows // head.terms], u[rows // head.terms], rows % head.terms)
        torch.testing.assert_close(again.log_prob, expected, rtol=0.0, atol=2e-5)
        clip, _ = head.trust(u[rows // head.terms], rows % head.terms)
        assert len(clip) == len(rows)
        points, still = action_map.points(u), tuned.process.transitions(tuned.process.steps)
        with torch.no_grad():
            for k in range(int(head._steps[first])):
                out = tuned.net(points[:, k], still.time(k, points[:, k]), features)
                assert torch.equal(points[:, k + 1], still.stats(out, points[:, k], k)[0])
        other, _, _ = head_of(policy, config)
        other.load_state_dict(head.state_dict())
        assert (other.terms, other._first) == (head.terms, first)


def test_drawn_transitions_are_among_the_active_ones() -> None:
    """Three of them are active in the middle of the growth of four."""
    config = DenoisingConfig(level=0.7, min_std=0.0, random_step="decision", progressive=0.5)
    head, tuned, _ = head_of(policy_of("flow"), config)
    count = len(head._steps)
    head.next_round(0.25, rng())
    _, u, _ = acted(head, tuned, rows=60)
    assert u[:, -1].unique().tolist() == list(range(head._first, count))
    assert 0 < head._first < count


def test_learned_noise_stays_in_its_range_and_learns() -> None:
    """It starts at the geometric mean; large weights reach both ends and no further."""
    net = NoiseNet((3, 2), 4, 0.1, 0.4, [8])
    x, t, cond = torch.randn(50, 3, 2), torch.rand(50), torch.randn(50, 4)
    torch.testing.assert_close(net(x, t, cond), torch.full((50, 3, 2), 0.2))
    torch.nn.init.normal_(net.net[-1].weight, std=50.0)
    std = net(x, t, cond)
    assert 0.1 - 1e-6 <= std.min() < 0.11
    assert 0.39 < std.max() <= 0.4 + 1e-6
    head, tuned, _ = head_of(policy_of(), replace(KINDS["learned noise, one ratio"], entropy=0.1))
    features, u, _ = acted(head, tuned)
    terms = head.evaluate(features, u, torch.zeros(len(u), dtype=torch.long))
    (terms.log_prob.sum() + terms.loss).backward()
    assert all(p.grad is not None for p in head.module.parameters())


METHODS = ["dppo", "flow_sde", "flow_noise", "reinflow", "fpo", "awr"]


@pytest.fixture(scope="module", params=["flow-velocity", "diffusion-sample"])
def imitated(request: pytest.FixtureRequest) -> GenerativePolicy:
    """A base that has learned chunks spread around the bandit's target."""
    return spread_base(policy_of(request.param))


@pytest.mark.long
@pytest.mark.parametrize("name", METHODS)
def test_reward_of_a_bandit_rises(name: str, imitated: GenerativePolicy) -> None:
    """Plumbing: every method moves the deployed policy towards the target within a few rounds."""
    changes = ["learner.lr_actor=1e-3", "ppo.minibatches=4", "ppo.epochs=4"]
    bandit = Bandit(imitated, method(name, *[f"method.{change}" for change in changes]))
    before = bandit.deterministic()
    for _ in range(10):
        info = bandit.round(1000)
    assert all(torch.isfinite(value) for value in info.values())
    assert bandit.deterministic() > before + 0.02, (before, bandit.deterministic())


def test_critic_warms_up_alone() -> None:
    """critic_warmup=1: the first round changes the critic and not the policy; the second changes both."""
    bandit = Bandit(policy_of().eval(), method("dppo", "method.ppo.critic_warmup=1"), lanes=32)
    before = bandit.learner.weights()
    for changed in (False, True):
        bandit.round(10)
        now = bandit.learner.weights()
        same = all(torch.equal(value, before["actor"][key]) for key, value in now["actor"].items())
        assert same is not changed
        assert any(not torch.equal(value, before["critic"][key]) for key, value in now["critic"].items())


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (DenoisingConfig(noise_range=[0.2, 0.1]), r"noise_range=\[0.2, 0.1\]"),
        (DenoisingConfig(noise_range=[0.2]), r"\[smallest, largest\]"),
        (DenoisingConfig(entropy=0.1), "entropy=0"),
        (DenoisingConfig(ratio="chain", random_step="rollout"), "random_step=none"),
        (DenoisingConfig(ratio="chain", first_clip=0.1), "first_clip=null"),
        (DenoisingConfig(ratio="chain", discount=0.9), "discount=1"),
    ],
)
def test_settings_that_exclude_each_other_are_refused(config: DenoisingConfig, words: str) -> None:
    """The message names the setting and the remedy."""
    with pytest.raises(ConfigError, match=words):
        head_of(policy_of(), config)


def test_methods_are_settings_of_the_verb() -> None:
    """The schema of the verb holds all of them, so that --help lists them."""
    assert isinstance(FinetuneVerb(out="x").method.denoising, DenoisingConfig)
