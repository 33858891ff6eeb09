"""Initial noise of a generative policy during an episode."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from robo_rl.core.seeding import derive_seed, episode_noise
from robo_rl.core.shapes import Float

_BLOCK = 64  # decisions drawn at once; one block covers most episodes


class EpisodeNoise:
    """Noise keyed by (stream, episode seed, decision index), so all policies get the same noise on the same
    seed.

    scale: 1 for the policy's own N(0, I), 0 for the deterministic zero-noise policy. stream: selects an
    independent draw for the same episodes (best-of-n probes).
    """

    def __init__(self, shape: tuple[int, int], scale: float = 1.0, stream: int = 0) -> None:
        self.shape, self.scale, self.stream = shape, scale, stream
        self._seeds: dict[int, int] = {}
        self._blocks: dict[
            int, tuple[int, Tensor]
        ] = {}  # lane -> (block index, (_BLOCK, Tp, a)): the latest alone

    def reset(self, lane_ids: Sequence[int], episode_seeds: Sequence[int]) -> None:
        for lane, seed in zip(lane_ids, episode_seeds, strict=True):
            self._seeds[int(lane)] = int(seed)
            self._blocks.pop(int(lane), None)

    def draw(self, lane_ids: Sequence[int], decision: Sequence[int]) -> Float[Tensor, "k Tp a"]:
        if self.scale == 0.0:
            return torch.zeros(len(lane_ids), *self.shape)
        return (
            torch.stack([self._row(int(r), int(d)) for r, d in zip(lane_ids, decision, strict=True)])
            * self.scale
        )

    def _row(self, lane: int, decision: int) -> Float[Tensor, "Tp a"]:
        block, offset = divmod(decision, _BLOCK)
        if lane not in self._blocks or self._blocks[lane][0] != block:
            seed = derive_seed("noise", self.stream, self._seeds[lane], block)
            self._blocks[lane] = block, episode_noise(seed, _BLOCK, self.shape)
        return self._blocks[lane][1][offset]

    def state_dict(self) -> dict[str, list[int]]:
        """Lanes and their episode seeds, from which the draws follow."""
        return {"lanes": list(self._seeds), "seeds": list(self._seeds.values())}

    def load_state_dict(self, state: dict[str, list[int]]) -> None:
        self._seeds, self._blocks = {}, {}
        self.reset(state["lanes"], state["seeds"])
