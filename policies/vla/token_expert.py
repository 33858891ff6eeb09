"""Action expert for tokens: a decoder with causal attention over [prefix's keys and values; tokens before].

Layer i sees layer i of the prefix, as in `policies.vla.expert`, whose blocks it shares. Logits of a token
depend on the prefix, the state and the tokens before it. Training and log-probabilities take one pass over
all tokens; sampling is token by token, with the keys and values of the earlier ones kept.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from policies.base.tokens import Tokens
from policies.vla.cond import Cond
from policies.vla.expert import ExpertBlock, ExpertSizes, modulate
from robo_rl.core.shapes import Float


class TokenExpert(nn.Module):
    """logits(chunk (b, Tp, a), cond) -> (b, n, bins)."""

    def __init__(self, process: Tokens, action_dim: int, sizes: ExpertSizes) -> None:
        super().__init__()
        width = sizes.width
        self.process, self.action_dim, self.state_dim = process, action_dim, sizes.state
        self.state = nn.Linear(sizes.state, width)
        self.recalled = nn.Linear(sizes.recalled, width) if sizes.recalled else None
        centres = process.value(torch.arange(process.bins)).unsqueeze(1)
        # neighbouring bins start with similar vectors
        self.token = nn.Parameter(
            0.3 * centres * torch.randn(1, width) + 0.02 * torch.randn(process.bins, width)
        )
        self.position = nn.Parameter(0.1 * torch.randn(process.steps, width))
        self.code = nn.Parameter(torch.randn(width))  # in the place of the process time
        self.blocks = nn.ModuleList([ExpertBlock(sizes) for _ in range(sizes.layers)])
        self.last_modulation = nn.Linear(width, 2 * width)
        self.last = nn.Linear(width, process.bins)
        for layer in (self.last_modulation, self.last):
            nn.init.zeros_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(
        self, chunk: Float[Tensor, "b Tp a"], cond: Cond, count: int | None = None
    ) -> Float[Tensor, "b n v"]:
        """Logits of the first `count` tokens, each given those of `chunk` before it; None: all."""
        count = self.process.steps if count is None else count
        before = self.token[self.process.token(chunk.flatten(1)[:, : count - 1])]
        h = torch.cat([self._start(cond), before], dim=1) + self.position[:count]
        causal = torch.ones(count, count, dtype=torch.bool, device=h.device).tril()
        seen = cond.mask[:, None, None, :].expand(-1, 1, count, -1)
        mask = torch.cat([seen, causal.expand(len(h), 1, -1, -1)], dim=-1)
        code = self._code(cond)
        for block, keys, values in zip(self.blocks, cond.keys, cond.values, strict=True):
            h = block(h, code, keys, values, mask)
        return self._logits(h, code)

    def sample(
        self,
        cond: Cond,
        noise: Float[Tensor, "b Tp a"],
        count: int | None = None,
        temperature: float = 1.0,
    ) -> Float[Tensor, "b Tp a"]:
        """The chunk whose tokens this noise draws. count: of tokens, as in `forward`; the others stay 0."""
        count = self.process.steps if count is None else count
        if torch.compiler.is_exporting() and count == self.process.steps and temperature == 1.0:
            return self._sample_in_graph(cond, noise)
        flat, code, h = noise.flatten(1), self._code(cond), self._start(cond)
        keys, values, mask = list(cond.keys), list(cond.values), cond.mask
        drawn = []
        for k in range(count):
            h = h + self.position[k]
            mask = F.pad(mask, (0, 1), value=True)
            for i, block in enumerate(self.blocks):
                assert isinstance(block, ExpertBlock)
                h, keys[i], values[i] = block.extend(h, code, keys[i], values[i], mask[:, None, None, :])
            drawn.append(self.process.draw(self._logits(h, code)[:, 0], flat[:, k], temperature))
            h = self.token[drawn[-1]].unsqueeze(1)
        chunk = self.process.value(torch.stack(drawn, dim=1)).to(noise.dtype)
        padded = F.pad(chunk, (0, self.process.steps - count))
        return padded.view(len(padded), -1, self.action_dim)

    def _sample_in_graph(self, cond: Cond, noise: Float[Tensor, "b Tp a"]) -> Float[Tensor, "b Tp a"]:
        """`sample` as one step that a graph repeats: a graph of all steps one after another takes hundreds of
        seconds to export. Shapes are those of all tokens, and a mask hides the later ones.
        """
        from torch._higher_order_ops.scan import scan

        steps, code, start = self.process.steps, self._code(cond), self._start(cond)
        # a scan allows no two views of one tensor
        keys, values = ([x.clone() for x in layers] for layers in (cond.keys, cond.values))
        mask = cond.mask.clone()
        places = torch.eye(steps, dtype=torch.bool, device=noise.device)
        earlier = torch.ones_like(places).tril()
        lanes, heads, _, dim = keys[0].shape
        own = keys[0].new_zeros(len(keys), 2, lanes, heads, steps, dim)  # of all layers

        def step(
            carry: tuple[Tensor, Tensor], x: tuple[Tensor, Tensor, Tensor, Tensor]
        ) -> tuple[tuple[Tensor, Tensor], Tensor]:
            (h, own), (z, position, place, before) = carry, x
            seen = torch.cat([mask, before.expand(len(mask), -1)], dim=1)[:, None, None, :]
            h, kept = h + position, []
            for i, block in enumerate(self.blocks):
                assert isinstance(block, ExpertBlock)
                h, mine = block.extend_at(h, code, keys[i], values[i], own[i], place, seen)
                kept.append(mine)
            token = self.process.draw(self._logits(h, code)[:, 0], z)
            return (self.token[token].unsqueeze(1), torch.stack(kept)), self.process.value(token)

        flat = noise.flatten(1).transpose(0, 1).contiguous()
        _, drawn = scan(step, (start, own), (flat, self.position, places, earlier))
        chunk: Tensor = drawn.transpose(0, 1).unflatten(1, (-1, self.action_dim)).to(noise.dtype)
        return chunk

    def loss(self, cond: Cond, chunk: Float[Tensor, "b Tp a"]) -> Float[Tensor, " b"]:
        """Cross-entropy of the chunk's tokens, mean over them."""
        wanted = self.process.token(chunk.flatten(1))
        each = F.cross_entropy(self(chunk, cond).transpose(1, 2), wanted, reduction="none")
        return each.mean(1)

    def _start(self, cond: Cond) -> Float[Tensor, "b 1 w"]:
        state: Tensor = self.state(cond.state[:, : self.state_dim])
        return state.unsqueeze(1)

    def _code(self, cond: Cond) -> Float[Tensor, "b w"]:
        code = self.code.expand(cond.pooled.shape[0], -1)
        return code if self.recalled is None else code + self.recalled(cond.state[:, self.state_dim :])

    def _logits(self, h: Float[Tensor, "b n w"], code: Float[Tensor, "b w"]) -> Float[Tensor, "b n v"]:
        shift, scale = self.last_modulation(code).unsqueeze(1).chunk(2, dim=-1)
        logits: Tensor = self.last(modulate(h, shift, scale))
        return logits


@dataclass(frozen=True)
class TokenSampler:
    """The decoder with conditions in another form, such as the rows of `policies.vla.packed`."""

    net: TokenExpert
    cond_of: Callable[[Tensor], Cond]

    @property
    def process(self) -> Tokens:
        return self.net.process

    def sample(
        self, rows: Float[Tensor, "b f"], noise: Float[Tensor, "b Tp a"], count: int, temperature: float
    ) -> Float[Tensor, "b Tp a"]:
        return self.net.sample(self.cond_of(rows), noise, count, temperature)

    def logits(
        self, rows: Float[Tensor, "b f"], chunk: Float[Tensor, "b Tp a"], count: int
    ) -> Float[Tensor, "b n v"]:
        logits: Tensor = self.net(chunk, self.cond_of(rows), count)
        return logits
