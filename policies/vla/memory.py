"""Memory of a vision-language-action policy: tokens of its last decisions, and a transformer over them.

As in HAMLET ("Switch your VLA model into a history-aware policy", 2025), learned moment tokens stand at the
end of the prefix, so that their outputs sum up what was seen at a decision. The executor keeps these outputs,
not pictures, and a small transformer over those of the last K decisions and of this one gives what the action
expert reads beside the state.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from robo_rl.core.errors import ConfigError
from robo_rl.core.shapes import Bool, Float

DEPTH = 2  # blocks


class MemoryBlock(nn.Module):
    """h + attention(norm(h)), then h + MLP(norm(h)). keep: tokens that may be attended to."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, h: Float[Tensor, "b n w"], keep: Bool[Tensor, "b n"]) -> Float[Tensor, "b n w"]:
        q, k, v = self.qkv(self.first(h)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=keep[:, None, None, :])
        h = h + self.out(mixed.transpose(1, 2).flatten(2))
        out: Tensor = h + self.down(F.gelu(self.up(self.second(h)), approximate="tanh"))
        return out


class MomentMemory(nn.Module):
    """(earlier moments, this moment) -> what the action expert reads.

    decisions: K, the number of remembered ones. moments: tokens of a decision, each of `width`.
    """

    def __init__(self, decisions: int, moments: int, width: int, heads: int) -> None:
        super().__init__()
        self.decisions, self.moments, self.width = decisions, moments, width
        self.tokens = nn.Parameter(0.02 * torch.randn(moments, width))
        self.place = nn.Parameter(0.02 * torch.randn((decisions + 1) * moments, width))
        self.blocks = nn.ModuleList([MemoryBlock(width, heads) for _ in range(DEPTH)])
        self.last = nn.LayerNorm(width)

    @property
    def dim(self) -> int:
        """Numbers of a moment, and of what the expert reads."""
        return self.moments * self.width

    @property
    def shape(self) -> tuple[int, int]:
        """(K, 1 + dim), of the memory in an observation; see `robo_rl.core.conditioning.MEMORY`."""
        return self.decisions, 1 + self.dim

    def forward(self, past: Float[Tensor, "b K c1"], moment: Float[Tensor, "b c"]) -> Float[Tensor, "b c"]:
        """Tokens of this decision after attention to those of the remembered ones."""
        held, now = past[:, :, :1] > 0.5, torch.ones_like(moment[:, :1]) > 0.5
        keep = torch.cat([held.expand(-1, -1, self.moments).flatten(1), now.expand(-1, self.moments)], dim=1)
        values = torch.cat([past[:, :, 1:], moment.unsqueeze(1)], dim=1)
        h = values.unflatten(2, (self.moments, self.width)).flatten(1, 2) + self.place
        for block in self.blocks:
            h = block(h, keep)
        out: Tensor = self.last(h[:, -self.moments :]).flatten(1)
        return out

    def check(self, past: Tensor | None, rows: int) -> None:
        """Raise ConfigError unless this is a memory of `rows` observations."""
        found = "none" if past is None else f"shape {tuple(past.shape)}"
        if past is None or past.shape != (rows, *self.shape):
            raise ConfigError(
                f"The policy remembers decisions and needs 'memory' of shape {(rows, *self.shape)}, found "
                f"{found}. Run it by a ChunkExecutor, which holds the memory of each episode."
            )
