"""Bandit for denoising methods: one decision per episode, reward = -distance of the chunk to a target."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from policies.base.generative import GenerativePolicy
from robo_rl.apps.cli.config import load_config
from robo_rl.apps.tuning.denoising import chain_head, chain_map, tunable
from robo_rl.conf.finetune import FinetuneVerb, MethodConfig
from robo_rl.core.protocols import ChunkPolicy
from robo_rl.core.seeding import generator
from robo_rl.rl.on_policy.groups import GroupConfig, group_advantage
from robo_rl.rl.on_policy.ppo_learner import PpoLearner
from robo_rl.rl.on_policy.rollout import RolloutTransitions


def method(name: str, *overrides: str) -> MethodConfig:
    return load_config("finetune", [f"method={name}", "out=x", *overrides], FinetuneVerb).method


def target_of(features: Tensor) -> Tensor:
    """(b, 1, 2): the best action of every step of the chunk."""
    return torch.stack([features[:, 0].tanh(), features[:, 1].sin()], dim=-1).unsqueeze(1) * 0.5


def spread_base(policy: GenerativePolicy, updates: int = 200, seed: int = 0) -> GenerativePolicy:
    """The policy after imitating chunks with a std of 0.4 around the target."""
    torch.manual_seed(seed)
    optimizer = torch.optim.Adam(policy.net.parameters(), 2e-3)
    for _ in range(updates):
        features = torch.randn(256, policy.encoder.dim)
        chunk = (target_of(features) + 0.4 * torch.randn(256, 1, 2)).clamp(-1.0, 1.0)
        chunk, noise = chunk.expand(-1, policy.chunk, -1), torch.randn(256, policy.chunk, 2)
        loss = policy.process.bc_loss(policy.net, features, chunk, noise, torch.rand(256)).mean()
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return policy.eval()


def spread_of(policy: ChunkPolicy, features: Tensor, like: Tensor, draws: int = 8) -> float:
    """Standard deviation of the chunk over initial noise, mean over elements and decisions.

    like: (draws, b, Tp, a), noises of the same shape and type.
    """
    noise = torch.randn(draws, *like.shape[1:], generator=generator("spread", 0)).to(like)
    with torch.no_grad():
        chunks = torch.stack([policy.sample_from(features, each) for each in noise])
    return float(chunks.std(dim=0).mean())


EVALUATION_DRAWS = 4  # initial noises of each context in an evaluation, the same for all methods


class Bandit:
    """A learner over a copy of `base`, and rounds of `lanes` decisions, one in each of `lanes` contexts.

    With method.groups a round has fewer contexts, and `groups.size` decisions from the same noise in each.
    """

    def __init__(self, base: GenerativePolicy, config: MethodConfig, lanes: int = 256, seed: int = 0) -> None:
        draws = config.map.draws if config.map.kind == "draws" else 0
        self.policy = tunable(base, config.denoising.guidance, generator("labels", seed))
        self.map, rng = chain_map(base, draws), generator("bandit", seed)
        self.features = torch.randn(lanes, base.encoder.dim, generator=rng).to(next(base.parameters()))
        self.target = target_of(self.features)
        dim = base.encoder.dim
        self.head = chain_head(self.policy, dim, config.denoising, config.ppo.clip, rng, draws)
        self.learner = PpoLearner(dim, self.map, config.learner, config.ppo, rng, head=self.head)
        self.groups, self.rng = config.groups, rng
        drawn = torch.randn(
            EVALUATION_DRAWS, lanes, *self.map.shape, generator=generator("bandit noise", seed)
        )
        self.noise = drawn.to(self.features)

    def reward(self, chunk: Tensor, target: Tensor) -> Tensor:
        return -(chunk - target).square().mean(dim=(1, 2)).sqrt()

    def spread(self) -> float:
        return spread_of(self.policy, self.features, self.noise)

    def deterministic(self) -> float:
        """Mean reward of the deployed policy."""
        with torch.no_grad():
            chunks = [self.policy.sample_from(self.features, noise) for noise in self.noise]
            return float(torch.stack([self.reward(chunk, self.target) for chunk in chunks]).mean())

    def round(self, total: int) -> dict[str, Any]:
        lanes, size = len(self.features), max(1, self.groups.size)
        context = torch.arange(lanes)
        if size > 1:
            context = torch.randperm(lanes, generator=self.rng)[: lanes // size].repeat(size)
        noise = torch.randn(lanes // size, *self.map.shape, generator=self.rng).repeat(size, 1, 1)
        features = self.features[context]
        u = self.learner.act(features, noise.to(features).flatten(1), explore=True)
        none, reward = features[:, :0], self.reward(self.map.to_chunk(u), self.target[context])
        if size > 1:
            everything = GroupConfig(size, 0.0, 1.0)
            advantage, _, _ = group_advantage(context, reward, torch.zeros_like(reward).bool(), everything)
            return self.learner.update(RolloutTransitions(features, none, u, advantage, None), total)
        advantage = reward - self.learner.value(features, none)
        return self.learner.update(RolloutTransitions(features, none, u, advantage, reward), total)
