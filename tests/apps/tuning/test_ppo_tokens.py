"""PPO on action tokens: log-probabilities by hand, ratio 1 on the first minibatch, and reward that rises."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from policies.base.tokens import Tokens
from policies.vla.packed import PackedPolicy
from policies.vla.policy import VlaPolicy
from robo_rl.apps.tuning.denoising import chain_map, token_head, token_map, tunable
from robo_rl.conf.finetune import FinetuneVerb
from robo_rl.core.action_map import ChainMap
from robo_rl.core.errors import ConfigError
from robo_rl.rl.denoising.config import DenoisingConfig, check_denoising
from robo_rl.rl.denoising.tokens import TokenHead
from robo_rl.rl.on_policy.ppo_learner import PpoLearner
from robo_rl.rl.on_policy.rollout import RolloutTransitions
from tests.policies.small import flow_policy
from tests.policies.small_vla import TA, TP, seen, small_vla, token_vla

pytest.importorskip("transformers", reason="transformers is not installed: pip install 'robo-rl[vla]'")

SUMMED = DenoisingConfig(ratio="chain", reduce="sum", temperature=1.5, entropy=0.01)
TEXTS = ("right", "go to the left side") * 8


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def head_of(config: DenoisingConfig, dtype: torch.dtype) -> tuple[TokenHead, VlaPolicy, Tensor]:
    """(head, the policy that it trains, packed features of 16 observations)."""
    policy = tunable(token_vla())
    assert isinstance(policy, VlaPolicy)
    packed = PackedPolicy(policy)
    features = packed.features(seen(*TEXTS)).to(dtype)
    policy.net.to(dtype)
    return token_head(policy, config, 0.2, packed), policy, features


@dataclass
class FixedDecoder:
    """Two tokens of three bins, with probabilities 0.2, 0.5, 0.3 and 0.1, 0.1, 0.8."""

    process: Tokens = field(default_factory=lambda: Tokens(3, 2))

    def sample(self, rows: Tensor, noise: Tensor, count: int, temperature: float) -> Tensor:
        raise AssertionError

    def logits(self, rows: Tensor, chunk: Tensor, count: int) -> Tensor:
        probabilities = torch.tensor([[0.2, 0.5, 0.3], [0.1, 0.1, 0.8]])
        return probabilities.log().expand(len(rows), -1, -1)[:, :count]


def test_log_probabilities_by_hand() -> None:
    """Chunk (0, 2/3): bins 1 and 2, probabilities 0.5 and 0.8. At temperature 1/2 they are squared, then
    divided by their sum. Of one executed action, the first token alone counts.
    """
    u = torch.tensor([[0.0, 2.0 / 3.0, 0.0]])
    x, term = torch.zeros(1, 1), torch.zeros(1, dtype=torch.long)
    squared = [0.25 / 0.38, 0.64 / 0.66]
    cases = {
        ("sum", 1.0, 2): math.log(0.5) + math.log(0.8),
        ("mean", 1.0, 2): (math.log(0.5) + math.log(0.8)) / 2,
        ("sum", 0.5, 2): math.log(squared[0]) + math.log(squared[1]),
        ("sum", 1.0, 1): math.log(0.5),
    }
    for (reduce, temperature, executed), expected in cases.items():
        config = DenoisingConfig(ratio="chain", reduce=reduce, temperature=temperature, entropy=2.0)
        head = TokenHead(FixedDecoder(), nn.Linear(1, 1), ChainMap(2, 1, 0, executed), config, 0.2)
        found = head.evaluate(x, u, term)
        torch.testing.assert_close(found.log_prob, torch.tensor([expected]))
        if temperature == 1.0 and executed == 1:
            entropy = -sum(p * math.log(p) for p in (0.2, 0.5, 0.3))
            torch.testing.assert_close(found.loss, torch.tensor(-2.0 * entropy))


@torch.no_grad()
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("reduce", ["sum", "mean"])
def test_ratio_is_one_on_the_first_minibatch(dtype: torch.dtype, reduce: str) -> None:
    """Promise 3: shuffled rows have the log-probabilities of the tokens as they were drawn, one by one."""
    head, policy, features = head_of(replace(SUMMED, reduce=reduce), dtype)
    process, drawn = policy.process, list[Tensor]()
    assert isinstance(process, Tokens)
    plain = Tokens.draw

    def recorded(self: Tokens, logits: Tensor, noise: Tensor, temperature: float = 1.0) -> Tensor:
        token = plain(self, logits, noise, temperature)
        drawn.append((logits / temperature).log_softmax(-1).gather(1, token.unsqueeze(1)))
        return token

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Tokens, "draw", recorded)
        u = head.act(features, torch.zeros(16, TP * 2).to(dtype), rng(1), explore=True)
    each = torch.cat(drawn, dim=1)
    assert each.shape == (16, TA * 2)  # executed actions alone
    old = each.sum(1) if reduce == "sum" else each.mean(1)
    rows = torch.randperm(16, generator=rng(2))
    new = torch.cat([head.evaluate(features[part], u[part], part * 0).log_prob for part in rows.split(5)])
    ratio = (new - old[rows]).exp()
    assert ratio.dtype == dtype
    tolerance = 2e-5 if dtype == torch.float32 else 1e-12
    torch.testing.assert_close(ratio, torch.ones_like(ratio), rtol=0.0, atol=tolerance)


@torch.no_grad()
def test_without_exploration_the_head_is_the_base() -> None:
    """Promise 1, for the noise of the decision, at any temperature of rollouts."""
    head, _, features = head_of(SUMMED, torch.float32)
    noise = torch.randn(16, TP * 2, generator=rng())
    u = head.act(features, noise, rng(), explore=False)
    chunk = token_vla().sample(seen(*TEXTS), noise.view(16, TP, 2))
    assert torch.equal(head.map.to_chunk(u), chunk)


def test_reward_of_told_sides_rises() -> None:
    """One decision an episode: the words say towards which end the executed actions shall go. The deployed
    policy, without noise and at temperature 1, gains.
    """
    method = FinetuneVerb(out="x").method
    ppo = replace(method.ppo, epochs=4, minibatches=2, clip=0.2, warmup=0, value_bias=0.0)
    head, policy, features = head_of(replace(SUMMED, entropy=0.0), torch.float32)
    features = features.repeat(8, 1)
    side = torch.tensor([1.0, -1.0]).repeat(64)
    learner = PpoLearner(
        features.shape[1], head.map, replace(method.learner, lr_actor=3e-3), ppo, rng(3),
        PackedPolicy(policy).views, head,
    )  # fmt: skip

    def reward(u: Tensor) -> Tensor:
        return head.map.to_chunk(u)[:, :TA].mean(dim=(1, 2)) * side

    def deployed() -> float:
        with torch.no_grad():
            return float(reward(head.act(features, torch.zeros(128, TP * 2), rng(), explore=False)).mean())

    before, none = deployed(), features[:, :0]
    info: Any = {}
    for _ in range(8):
        u = learner.act(features, torch.zeros(128, TP * 2), explore=True)
        found = reward(u)
        advantage = found - learner.value(features, none)
        info = learner.update(RolloutTransitions(features, none, u, advantage, found), 1000)
        assert float(info["actor/first_ratio_error"]) < 2e-5
    assert deployed() > before + 0.3, (before, deployed())
    assert 0.0 < float(info["actor/entropy"]) <= math.log(16.0)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (DenoisingConfig(), "ratio=transition"),
        (replace(SUMMED, random_step="decision"), "random_step=decision"),
        (replace(SUMMED, noise_range=[0.1, 0.2]), "noise_range"),
        (replace(SUMMED, discount=0.9), "Set it to 1.0"),
    ],
)
def test_settings_of_transitions_are_refused(config: DenoisingConfig, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        head_of(config, torch.float32)


def test_bases_that_do_not_fit_are_refused() -> None:
    """The message names the method or the training that fits."""
    with pytest.raises(ConfigError, match=r"policy\.head=tokens"):
        token_map(small_vla())
    with pytest.raises(ConfigError, match=r"policy\.head=tokens"):
        token_map(flow_policy())
    with pytest.raises(ConfigError, match="method=ppo_tokens"):
        chain_map(token_vla())
    with pytest.raises(ConfigError, match=r"\(fpo, awr, recap\) need a policy of policy=generative"):
        chain_map(small_vla(), draws=8)
    with pytest.raises(ConfigError, match=r"map\.kind=tokens"):
        check_denoising(DenoisingConfig(temperature=1.5))
