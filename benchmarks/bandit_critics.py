"""The bandit of `benchmarks/bandit.py` for methods of critics over a frozen base: IDQL, QC, EXPO and FQL."""

from __future__ import annotations

from typing import Any

import torch
from bandit import EVALUATION_DRAWS, spread_of, target_of
from torch import Tensor

from policies.base.generative import GenerativePolicy
from robo_rl.apps.tuning.compose import build_learner, deployed
from robo_rl.apps.tuning.maps import build_map
from robo_rl.conf.finetune import MethodConfig
from robo_rl.core.action_map import CandidateMap
from robo_rl.core.seeding import generator
from robo_rl.data.replay import Batch

BASE_SHARE = 6  # the base acts in the first rounds, one in so many
BURN_IN = 25  # updates per round of all, after the rounds of the base


class CriticBandit:
    """A learner beside a frozen base, and rounds of `lanes` decisions, one in each of `lanes` contexts.

    All decisions are kept. A round has utd * lanes updates; the first after the rounds of the base has a
    burn-in as well.
    """

    def __init__(self, base: GenerativePolicy, config: MethodConfig, lanes: int = 256, seed: int = 0) -> None:
        self.base, self.config, self.rng = base, config, generator("bandit", seed)
        dim = base.encoder.dim
        self.features = torch.randn(lanes, dim, generator=self.rng)
        self.target = target_of(self.features)
        self.map = build_map(config.map, base)
        self.learner = build_learner(config, base, dim, self.map, self.rng)
        self.policy: Any = deployed(base, self.learner, self.map)
        self.shape = (base.chunk, base.action_spec.dim)
        drawn = generator("bandit noise", seed)
        self.noise = torch.randn(EVALUATION_DRAWS, lanes, *self.shape, generator=drawn)
        self.kept: list[tuple[Tensor, Tensor, Tensor, Tensor]] = []  # of each round, see `_act`
        self._joined: tuple[Tensor, ...] | None = None  # all rounds, made when needed
        self.rounds = 0

    def reward(self, chunk: Tensor) -> Tensor:
        return -(chunk - self.target).square().mean(dim=(1, 2)).sqrt()

    def spread(self) -> float:
        return spread_of(self.policy, self.features, self.noise)

    def deterministic(self) -> float:
        """Mean reward of the deployed policy."""
        with torch.no_grad():
            chunks = [self.policy.sample_from(self.features, noise) for noise in self.noise]
            return float(torch.stack([self.reward(chunk) for chunk in chunks]).mean())

    def round(self, total: int) -> dict[str, Any]:
        by_base = self.rounds < max(1, total // BASE_SHARE)
        self.kept.append(self._act(by_base))
        self._joined = None
        self.rounds += 1
        if by_base:
            if self.rounds == max(1, total // BASE_SHARE):
                for _ in range(BURN_IN * total):
                    self.learner.burn_in(self._batch(), monte_carlo=True)
            return {}
        info: dict[str, Any] = {}
        for _ in range(round(self.config.utd * len(self.features))):
            info = self.learner.update(self._batch())
        return info

    @torch.no_grad()
    def _act(self, by_base: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """(features, context, chunk, reward) of one decision in each context. The base takes any draw."""
        lanes, chosen = len(self.features), isinstance(self.map, CandidateMap)
        count = self.map.count if isinstance(self.map, CandidateMap) else 1
        noise = torch.randn(count, lanes, *self.shape, generator=self.rng)
        ctx = self.features[:, :0]
        if chosen:
            draws = [self.base.sample_from(self.features, each).flatten(1) for each in noise]
            ctx = torch.cat(draws, dim=1)
        seen = ctx if chosen else noise[0].flatten(1)
        if chosen and by_base:
            u = torch.cat([torch.zeros(lanes, self.map.dim - 1), torch.rand(lanes, 1, generator=self.rng)], 1)
        else:
            u = self.learner.act(self.features, seen, explore=True)
        chunk = self.map.to_critic(u, ctx)
        return self.features, ctx, chunk, self.reward(chunk.view(lanes, *self.shape))

    def _batch(self) -> Batch:
        """A sample of all decisions. There is no next decision: a single row of one saves time."""
        size = self.config.learner.batch
        which = torch.randint(len(self.kept), (size,), generator=self.rng)
        row = torch.randint(len(self.features), (size,), generator=self.rng)
        rows = which * len(self.features) + row
        if self._joined is None:
            self._joined = tuple(torch.cat(column) for column in zip(*self.kept, strict=True))
        obs, ctx, chunk, reward = (column[rows] for column in self._joined)
        after = slice(None, 1) if isinstance(self.map, CandidateMap) else slice(None)
        none = torch.zeros_like(reward)
        return Batch(
            obs=obs, ctx=ctx, critic_action=chunk, action=chunk, reward=reward, discount=none,
            next_obs=obs[after], next_ctx=ctx[after], mc_return=reward, return_floor=none, demo=none,
        )  # fmt: skip
