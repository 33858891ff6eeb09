"""The bandit of `benchmarks/bandit.py` for PPO on action tokens: a decoder without pictures and words."""

from __future__ import annotations

from typing import Any

import torch
from bandit import EVALUATION_DRAWS, spread_of, target_of
from torch import Tensor, nn

from policies.base.generative import GenerativePolicy
from policies.base.tokens import Tokens
from policies.vla.cond import Cond
from policies.vla.token_expert import TokenExpert, TokenSampler
from robo_rl.conf.finetune import MethodConfig
from robo_rl.core.action_map import ChainMap
from robo_rl.core.seeding import generator
from robo_rl.rl.denoising.config import check_tokens
from robo_rl.rl.denoising.tokens import TokenHead
from robo_rl.rl.on_policy.ppo_learner import PpoLearner
from robo_rl.rl.on_policy.rollout import RolloutTransitions

BINS, WIDTH, LAYERS, HEADS, KV_HEADS = 256, 64, 2, 4, 2
UPDATES = 200  # of the imitation, as for the other bases


class TokenBandit:
    """PPO of a decoder that has imitated the chunks of the bandit, and rounds of `lanes` decisions.

    Its condition is a prefix of no tokens and the features as the state. shapes: the base of other methods.
    """

    def __init__(
        self, shapes: GenerativePolicy, config: MethodConfig, lanes: int = 256, seed: int = 0
    ) -> None:
        check_tokens(config.denoising)
        self.shape, dim = (shapes.chunk, shapes.action_spec.dim), shapes.encoder.dim
        torch.manual_seed(seed)
        tokens = Tokens(BINS, self.shape[0] * self.shape[1])
        self.net = TokenExpert(tokens, self.shape[1], dim, WIDTH, HEADS, KV_HEADS, WIDTH // HEADS, LAYERS)
        self._imitate(dim)
        rng = generator("bandit", seed)
        self.features = torch.randn(lanes, dim, generator=rng)
        self.target = target_of(self.features)
        self.map = ChainMap(*self.shape, 0, shapes.execute)
        module = nn.ModuleDict({"net": self.net})
        head = TokenHead(TokenSampler(self.net, cond_of), module, self.map, config.denoising, config.ppo.clip)
        self.learner = PpoLearner(dim, self.map, config.learner, config.ppo, rng, head=head)
        drawn = generator("bandit noise", seed)
        self.noise = torch.randn(EVALUATION_DRAWS, lanes, *self.shape, generator=drawn)

    def _imitate(self, dim: int) -> None:
        """Chunks with a standard deviation of 0.4 around the target, as in `bandit.spread_base`."""
        optimizer = torch.optim.Adam(self.net.parameters(), 2e-3)
        for _ in range(UPDATES):
            features = torch.randn(256, dim)
            chunk = (target_of(features) + 0.4 * torch.randn(256, 1, 2)).clamp(-1.0, 1.0)
            loss = self.net.loss(cond_of(features), chunk.expand(-1, self.shape[0], -1)).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    def sample_from(self, features: Tensor, noise: Tensor) -> Tensor:
        """Chunk of the deployed policy."""
        return self.net.sample(cond_of(features), noise)

    def reward(self, chunk: Tensor) -> Tensor:
        return -(chunk - self.target).square().mean(dim=(1, 2)).sqrt()

    def spread(self) -> float:
        policy: Any = self
        return spread_of(policy, self.features, self.noise)

    def deterministic(self) -> float:
        """Mean reward of the deployed policy."""
        with torch.no_grad():
            chunks = [self.sample_from(self.features, noise) for noise in self.noise]
            return float(torch.stack([self.reward(chunk) for chunk in chunks]).mean())

    def round(self, total: int) -> dict[str, Any]:
        u = self.learner.act(self.features, torch.zeros(len(self.features), self.noise[0, 0].numel()), True)
        none, reward = self.features[:, :0], self.reward(self.map.to_chunk(u))
        advantage = reward - self.learner.value(self.features, none)
        return self.learner.update(RolloutTransitions(self.features, none, u, advantage, reward), total)


def cond_of(features: Tensor) -> Cond:
    """Condition of the features alone."""
    empty = features.new_zeros(len(features), KV_HEADS, 0, WIDTH // HEADS)
    layers, mask = (empty,) * LAYERS, torch.ones(len(features), 0, dtype=torch.bool)
    return Cond(layers, layers, mask, features, features, features[:, :0])
