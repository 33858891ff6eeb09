"""Updates of SAC and TD3 compared with plain implementations of both: equal weights after dozens of
updates.
"""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.distributions import Normal, TanhTransform

from robo_rl.apps.cli.config import load_config
from robo_rl.conf.finetune import FinetuneVerb
from robo_rl.core.action_map import DirectMap
from robo_rl.core.seeding import generator
from robo_rl.data.replay import Batch
from robo_rl.nets.critic import CriticEnsemble
from robo_rl.rl.off_policy.learner import OffPolicyLearner

OBS, ACT, SIZE, DATA, UPDATES = 5, 2, 32, 200, 40
RATE, GAMMA, TAU = 3e-4, 0.99, 0.005


class Plain:
    """One network per critic, one optimiser per loss; starts with a learner's weights and random numbers."""

    def __init__(self, learner: OffPolicyLearner) -> None:
        self.actor, self.slow_actor = (
            copy.deepcopy(learner.actor.net),
            copy.deepcopy(learner.target_actor.net),
        )
        self.critics, self.slow = (
            [head(part, k) for k in (0, 1)] for part in (learner.critic, learner.critics.target)
        )
        self.log_alpha = torch.zeros((), requires_grad=True)
        self.rng = torch.Generator()
        self.rng.set_state(learner.generator.get_state())
        weights = [p for critic in self.critics for p in critic.parameters()]
        self.critic_opt, self.actor_opt = (
            torch.optim.Adam(weights, RATE),
            torch.optim.Adam(self.actor.parameters(), RATE),
        )
        self.alpha_opt = torch.optim.Adam([self.log_alpha], RATE)
        self.updates = 0

    def sac(self, batch: Batch) -> None:
        with torch.no_grad():
            u, log_prob = self._sample(batch.next_obs)
            soft = judged(self.slow, batch.next_obs, u).amin(0) - self.log_alpha.exp() * log_prob
        self._fit(batch, batch.reward + batch.discount * soft)
        u, log_prob = self._sample(batch.obs)
        self._climb(
            (self.log_alpha.exp().detach() * log_prob - judged(self.critics, batch.obs, u).amin(0)).mean()
        )
        self.alpha_opt.zero_grad()
        (-self.log_alpha * (log_prob.detach() - ACT).mean()).backward()
        self.alpha_opt.step()
        self._follow(self.slow, self.critics)

    def td3(self, batch: Batch) -> None:
        noise = (0.2 * torch.randn(SIZE, ACT, generator=self.rng)).clamp(-0.5, 0.5)
        with torch.no_grad():
            u = (torch.tanh(self.slow_actor(batch.next_obs)) + noise).clamp(-1.0, 1.0)
            target = batch.reward + batch.discount * judged(self.slow, batch.next_obs, u).amin(0)
        self._fit(batch, target)
        self.updates += 1
        if self.updates % 2 == 0:
            self._climb(-judged(self.critics, batch.obs, torch.tanh(self.actor(batch.obs)))[0].mean())
            self._follow([*self.slow, self.slow_actor], [*self.critics, self.actor])

    def _sample(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        mean, raw = self.actor(obs).chunk(2, dim=-1)
        spread = Normal(mean, raw.clamp(-20.0, 2.0).exp())
        before = mean + spread.stddev * torch.randn(len(obs), ACT, generator=self.rng)
        u = torch.tanh(before)
        return u, (spread.log_prob(before) - TanhTransform().log_abs_det_jacobian(before, u)).sum(-1)

    def _fit(self, batch: Batch, target: Tensor) -> None:
        self.critic_opt.zero_grad()
        (judged(self.critics, batch.obs, batch.critic_action) - target).square().mean(1).sum().backward()
        self.critic_opt.step()

    def _climb(self, loss: Tensor) -> None:
        self.actor_opt.zero_grad()
        loss.backward()
        self.actor_opt.step()

    def _follow(self, slow: list[nn.Sequential], fast: list[nn.Sequential]) -> None:
        with torch.no_grad():
            for behind, ahead in zip(slow, fast, strict=True):
                for p, q in zip(behind.parameters(), ahead.parameters(), strict=True):
                    p.copy_((1.0 - TAU) * p + TAU * q)


def head(critic: CriticEnsemble, k: int) -> nn.Sequential:
    """One critic of an ensemble, as layers."""
    layers: list[nn.Module] = []
    for weight, bias in zip(critic.weights, critic.biases, strict=True):
        layer = nn.Linear(*weight[k].shape)
        layer.weight.data, layer.bias.data = weight[k].detach().T.clone(), bias[k, 0].detach().clone()
        layers += [layer, nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def judged(critics: list[nn.Sequential], obs: Tensor, u: Tensor) -> Tensor:
    """(critics, rows)"""
    return torch.stack([critic(torch.cat([obs, u], -1)).squeeze(-1) for critic in critics])


def batches(count: int) -> list[Batch]:
    rng = torch.Generator().manual_seed(1)
    obs, then = torch.randn(2, DATA, OBS, generator=rng)
    u = torch.rand(DATA, ACT, generator=rng) * 2.0 - 1.0
    reward, ended = 3.0 * torch.rand(DATA, generator=rng), torch.rand(DATA, generator=rng) < 0.05
    none, nan = torch.zeros(SIZE, 0), torch.full((SIZE,), torch.nan)
    rows = [torch.randint(DATA, (SIZE,), generator=rng) for _ in range(count)]
    return [
        Batch(
            obs[i],
            none,
            u[i],
            u[i],
            reward[i],
            GAMMA * (~ended[i]).float(),
            then[i],
            none,
            nan,
            nan,
            0.0 * nan,
        )
        for i in rows
    ]


@pytest.mark.parametrize("method", ["sac", "td3"])
def test_updates_are_the_published_ones(method: str, tmp_path: Path) -> None:
    """Batched critics, flat optimisers and all settings of the method file, compared with the plain form."""
    words = [f"method={method}", f"out={tmp_path}", "env=gym/Hopper-v5", "method.learner.hidden=[16,16]"]
    cfg = load_config("finetune", words, FinetuneVerb).method.learner
    learner = OffPolicyLearner(OBS, DirectMap(ACT), cfg, generator("published"))
    torch.manual_seed(0)
    with torch.no_grad():  # a mean that is 0 everywhere would hide half of the formula
        learner.actor.net[-1].get_parameter("weight").normal_(0.0, 0.1)
    learner.target_actor.load_state_dict(learner.actor.state_dict())
    plain = Plain(learner)
    started = [flat.clone() for flat in weights_of(learner)]
    for batch in batches(UPDATES):
        learner.update(batch)
        getattr(plain, method)(batch)
    for critic, theirs in ((learner.critic, plain.critics), (learner.critics.target, plain.slow)):
        for k in (0, 1):
            same(head(critic, k), theirs[k])
    same(learner.actor.net, plain.actor)
    if method == "td3":
        same(learner.target_actor.net, plain.slow_actor)
    else:
        assert learner.multipliers.log_alpha.item() == pytest.approx(plain.log_alpha.item(), abs=1e-6)
    moved = [
        (a - b).abs().max()
        for a, b in zip(started, (learner.actor_opt.flat, learner.critics.critic_opt.flat), strict=True)
    ]
    assert min(moved) > 5e-3, "so that agreement means something"


def same(ours: nn.Module, theirs: nn.Module) -> None:
    for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert (p - q).abs().max() < 2e-6


def weights_of(learner: OffPolicyLearner) -> tuple[Tensor, Tensor]:
    """All weights of the actor, and of the critics."""
    return learner.actor_opt.flat, learner.critics.critic_opt.flat
