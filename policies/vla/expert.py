"""Action expert: a transformer whose layers attend to the keys and values of a prefix and to their own.

adaLN on the process time (Peebles & Xie 2023), one token for the state and one for each action of the chunk.
Layer i sees layer i of the prefix (pi0, Black et al. 2024), so the prefix is computed once per plan.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from policies.vla.cond import Cond
from robo_rl.core.shapes import Bool, Float
from robo_rl.nets.time_embedding import SinusoidalTime


@dataclass(frozen=True, slots=True)
class ExpertSizes:
    """Sizes of an action expert. kv_heads, head_dim, layers: those of the prefix.

    state: numbers of the condition's state that enter as a token. recalled: numbers after these that a memory
    gives; they enter by adaLN, like the process time, which reaches every token of every layer.
    """

    width: int
    heads: int
    kv_heads: int
    head_dim: int
    layers: int
    state: int
    recalled: int = 0


class ExpertBlock(nn.Module):
    """h + gate * attention, then h + gate * MLP, each of a modulated norm of h."""

    def __init__(self, sizes: ExpertSizes) -> None:
        super().__init__()
        width, heads, kv_heads, head_dim = sizes.width, sizes.heads, sizes.kv_heads, sizes.head_dim
        self.heads, self.kv_heads, self.head_dim = heads, kv_heads, head_dim
        self.modulation = nn.Linear(width, 6 * width)
        nn.init.zeros_(self.modulation.weight)
        nn.init.zeros_(self.modulation.bias)
        self.query = nn.Linear(width, heads * head_dim)
        self.key_value = nn.Linear(width, 2 * kv_heads * head_dim)
        self.out = nn.Linear(heads * head_dim, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(
        self,
        h: Float[Tensor, "b n w"],
        code: Float[Tensor, "b w"],
        keys: Float[Tensor, "b k L d"],
        values: Float[Tensor, "b k L d"],
        mask: Tensor,
    ) -> Float[Tensor, "b n w"]:
        """mask: (b, 1, 1 or n, L + n), False for padding and for what a token must not see."""
        return self.extend(h, code, keys, values, mask)[0]

    def extend(
        self,
        h: Float[Tensor, "b n w"],
        code: Float[Tensor, "b w"],
        keys: Float[Tensor, "b k L d"],
        values: Float[Tensor, "b k L d"],
        mask: Tensor,
    ) -> tuple[Float[Tensor, "b n w"], Float[Tensor, "b k M d"], Float[Tensor, "b k M d"]]:
        """`forward`, and the keys and values with those of h appended: M = L + n."""
        parts = self._parts(code)
        query, own_key, own_value = self._projected(h, parts)
        key, value = torch.cat([keys, own_key], dim=2), torch.cat([values, own_value], dim=2)
        return self._mixed(h, parts, query, key, value, mask), key, value

    def extend_at(
        self,
        h: Float[Tensor, "b 1 w"],
        code: Float[Tensor, "b w"],
        keys: Float[Tensor, "b k L d"],
        values: Float[Tensor, "b k L d"],
        own: Float[Tensor, "2 b k n d"],
        place: Bool[Tensor, " n"],
        mask: Tensor,
    ) -> tuple[Float[Tensor, "b 1 w"], Float[Tensor, "2 b k n d"]]:
        """`extend` by one token of n, with keys and values of constant shape.

        own: keys and values of all n tokens; those of h are written at the place that is True.
        """
        parts = self._parts(code)
        query, key, value = self._projected(h, parts)
        own = torch.where(place[:, None], torch.stack([key, value]), own)
        seen = torch.cat([keys, own[0]], dim=2), torch.cat([values, own[1]], dim=2)
        return self._mixed(h, parts, query, *seen, mask), own

    def _parts(self, code: Float[Tensor, "b w"]) -> tuple[Tensor, ...]:
        """Shift, scale and gate of the attention, then of the MLP."""
        parts: tuple[Tensor, ...] = self.modulation(code).unsqueeze(1).chunk(6, -1)
        return parts

    def _projected(
        self, h: Float[Tensor, "b n w"], parts: tuple[Tensor, ...]
    ) -> tuple[Float[Tensor, "b q n d"], Float[Tensor, "b k n d"], Float[Tensor, "b k n d"]]:
        """Queries, keys and values of h."""
        x = modulate(h, parts[0], parts[1])
        query = self.query(x).unflatten(-1, (self.heads, self.head_dim)).transpose(1, 2)
        own = self.key_value(x).unflatten(-1, (2, self.kv_heads, self.head_dim)).permute(2, 0, 3, 1, 4)
        return query, own[0], own[1]

    def _mixed(
        self,
        h: Float[Tensor, "b n w"],
        parts: tuple[Tensor, ...],
        query: Float[Tensor, "b q n d"],
        key: Float[Tensor, "b k M d"],
        value: Float[Tensor, "b k M d"],
        mask: Tensor,
    ) -> Float[Tensor, "b n w"]:
        """h after attention and MLP."""
        _, _, gate_a, shift_m, scale_m, gate_m = parts
        group = self.heads // self.kv_heads
        mixed = F.scaled_dot_product_attention(
            query, key.repeat_interleave(group, 1), value.repeat_interleave(group, 1), attn_mask=mask
        )
        h = h + gate_a * self.out(mixed.transpose(1, 2).flatten(2))
        hidden = F.gelu(self.up(modulate(h, shift_m, scale_m)), approximate="tanh")
        out: Tensor = h + gate_m * self.down(hidden)
        return out


class ActionExpert(nn.Module):
    """net(x (b, Tp, a), t (b,), cond) -> (b, Tp, outputs).

    outputs: dimensions of the action that it gives; None: all.
    """

    def __init__(
        self, action_dim: int, chunk: int, sizes: ExpertSizes, *, outputs: int | None = None
    ) -> None:
        super().__init__()
        width = sizes.width
        self.tokens, self.state = nn.Linear(action_dim, width), nn.Linear(sizes.state, width)
        self.state_dim = sizes.state
        self.recalled = nn.Linear(sizes.recalled, width) if sizes.recalled else None
        self.position = nn.Parameter(0.02 * torch.randn(chunk + 1, width))
        self.time = nn.Sequential(
            SinusoidalTime(width), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU()
        )
        self.blocks = nn.ModuleList([ExpertBlock(sizes) for _ in range(sizes.layers)])
        self.last_modulation = nn.Linear(width, 2 * width)
        self.last = nn.Linear(width, action_dim if outputs is None else outputs)
        for layer in (self.last_modulation, self.last):
            nn.init.zeros_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(
        self, x: Float[Tensor, "b Tp a"], t: Float[Tensor, " b"], cond: Cond
    ) -> Float[Tensor, "b Tp o"]:
        code, state = self.time(t), cond.state[:, : self.state_dim]
        if self.recalled is not None:
            code = code + self.recalled(cond.state[:, self.state_dim :])
        h = torch.cat([self.state(state).unsqueeze(1), self.tokens(x)], dim=1) + self.position
        mask = F.pad(cond.mask, (0, h.shape[1]), value=True)[:, None, None, :]
        for block, keys, values in zip(self.blocks, cond.keys, cond.values, strict=True):
            h = block(h, code, keys, values, mask)
        shift, scale = self.last_modulation(code).unsqueeze(1).chunk(2, dim=-1)
        out: Tensor = self.last(modulate(h[:, 1:], shift, scale))
        return out


def modulate(h: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
    """(1 + scale) * norm(h) + shift."""
    return torch.addcmul(shift, F.layer_norm(h, h.shape[-1:]), 1.0 + scale)
