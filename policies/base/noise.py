"""Initial noise of a generative policy during an episode."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from robo_rl.core.keyed_random import keyed_chunks
from robo_rl.core.shapes import Float


class EpisodeNoise:
    """Noise keyed by (stream, episode seed, decision index), so all policies get the same noise on the same
    seed, in any order of drawing and on any device.

    scale: 1 for the policy's own N(0, I), 0 for the deterministic zero-noise policy. stream: selects an
    independent draw for the same episodes (best-of-n probes).
    """

    def __init__(
        self,
        shape: tuple[int, int],
        scale: float = 1.0,
        stream: int = 0,
        device: torch.device | str = "cpu",
    ) -> None:
        self.shape, self.scale, self.stream = shape, scale, stream
        self._seeds = torch.zeros(0, dtype=torch.long, device=device)  # episode seed of every lane

    def reset(self, lane_ids: Sequence[int] | Tensor, episode_seeds: Sequence[int] | Tensor) -> None:
        """Set the episode seeds of these lanes."""
        device = self._seeds.device
        # Only a host's list can name lanes that are new: a tensor holds all lanes the first time.
        needed = len(lane_ids) if isinstance(lane_ids, Tensor) else 1 + max(lane_ids, default=-1)
        if (new := needed - len(self._seeds)) > 0:
            self._seeds = torch.cat([self._seeds, torch.zeros(new, dtype=torch.long, device=device)])
        at = torch.as_tensor(lane_ids, dtype=torch.long, device=device)
        self._seeds[at] = torch.as_tensor(episode_seeds, dtype=torch.long, device=device)

    def draw(
        self, lane_ids: Sequence[int] | Tensor, decision: Sequence[int] | Tensor
    ) -> Float[Tensor, "k Tp a"]:
        """Noise of one decision of each of these lanes."""
        device = self._seeds.device
        if self.scale == 0.0:
            return torch.zeros(len(lane_ids), *self.shape, device=device)
        seeds = self._seeds[torch.as_tensor(lane_ids, device=device)]
        normal = keyed_chunks(seeds, torch.as_tensor(decision, device=device), self.shape, self.stream)
        return normal if self.scale == 1.0 else normal * self.scale

    def state_dict(self) -> dict[str, list[int]]:
        """Lanes and their episode seeds, from which the draws follow."""
        return {"lanes": list(range(len(self._seeds))), "seeds": self._seeds.tolist()}

    def load_state_dict(self, state: dict[str, list[int]]) -> None:
        self.reset(state["lanes"], state["seeds"])
