"""Policy head of PPO on action tokens: the chunk is one action, whose probability is the product of tokens'.

VLA-RL (Lu et al. 2025, 2505.18719) sums the log-probabilities of an action's tokens into one ratio. Here the
action is the executed part of a chunk. Tokens of actions that are not executed come later in the order, so
leaving them out leaves the exact probability of what was done.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from robo_rl.core.action_map import ChainMap
from robo_rl.core.shapes import Float, Int, Int64
from robo_rl.rl.denoising.config import DenoisingConfig
from robo_rl.rl.on_policy.head import HeadTerms


@runtime_checkable
class TokenProcess(Protocol):
    """Values of an action as tokens."""

    def token(self, value: Tensor) -> Int64[Tensor, "*n"]: ...


@runtime_checkable
class TokenDecoder(Protocol):
    """Tokens of a policy from precomputed features, under its current weights. count: of the first ones."""

    @property
    def process(self) -> TokenProcess: ...

    def sample(
        self, rows: Tensor, noise: Tensor, count: int, temperature: float
    ) -> Float[Tensor, "b Tp a"]: ...

    def logits(self, rows: Tensor, chunk: Tensor, count: int) -> Float[Tensor, "b n v"]: ...


class TokenHead:
    """Distribution of a `ChainMap`'s u, which holds the chunk alone. One term: the executed tokens.

    Rollouts and ratios are at `config.temperature`; the deployed policy is at temperature 1. clip: of the
    ratio.
    """

    terms = 1

    def __init__(
        self,
        decoder: TokenDecoder,
        module: nn.Module,
        action_map: ChainMap,
        config: DenoisingConfig,
        clip: float,
    ) -> None:
        self.module, self.map, self.config = module, action_map, config
        self._decoder, self.clip = decoder, clip
        self._count = action_map.execute * action_map.shape[1]

    def act(
        self,
        obs: Float[Tensor, "b f"],
        ctx: Float[Tensor, "b n"],
        generator: torch.Generator,
        *,
        explore: bool,
    ) -> Float[Tensor, "b d"]:
        """Executed tokens drawn at the temperature, the others 0; without exploration the policy's chunk for
        the noise `ctx`.
        """
        noise, count, temperature = ctx.view(len(ctx), *self.map.shape), ctx.shape[1], 1.0
        if explore:
            noise = torch.randn(noise.shape, generator=generator, device=obs.device, dtype=obs.dtype)
            count, temperature = self._count, self.config.temperature
        chunk = self._decoder.sample(obs, noise, count, temperature)
        return torch.cat([chunk.flatten(1), chunk.new_zeros(len(chunk), 1)], dim=1)

    def evaluate(
        self, x: Float[Tensor, "r f"], u: Float[Tensor, "r d"], term: Int[Tensor, " r"]
    ) -> HeadTerms:
        chunk = self.map.points(u)[:, -1]
        drawn = self._decoder.process.token(chunk.flatten(1)[:, : self._count])
        logits = self._decoder.logits(x, chunk, self._count) / self.config.temperature
        log_probs = logits.log_softmax(-1)
        each = log_probs.gather(-1, drawn.unsqueeze(-1)).squeeze(-1)
        reduced = each.sum(1) if self.config.reduce == "sum" else each.mean(1)
        entropy = -(log_probs.exp() * log_probs).sum(-1).mean()
        return HeadTerms(reduced, -self.config.entropy * entropy, {"actor/entropy": entropy.detach()})
