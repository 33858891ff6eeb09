"""Hybrid roll-outs of PLD (2511.00091): the base acts first, then the actor takes over.

The actor meets the states in which the base would leave it, and its successes start as the base's do, so that
the base can imitate them.
"""

from __future__ import annotations

import torch
from torch import Tensor

from robo_rl.core.keyed_random import keyed_uniform
from robo_rl.core.lanes import Lanes
from robo_rl.core.protocols import Indices
from robo_rl.core.shapes import Bool, Int

_STREAM = 11  # of the draws, apart from other uses of an episode's seed


class Takeover:
    """Step of every lane's episode at which the actor takes over: 0 to `most`, uniform, a function of the
    episode's seed.
    """

    def __init__(self, lanes: int, most: int, device: torch.device | str = "cpu") -> None:
        self.most = most
        self.steps = torch.zeros(lanes, dtype=torch.long, device=device)

    def reset(self, lanes: Lanes, episode_seeds: Indices) -> None:
        """Draw the step of new episodes in these lanes. episode_seeds: of `lanes`."""
        seeds = torch.as_tensor(episode_seeds, dtype=torch.long, device=self.steps.device)
        drawn = keyed_uniform(seeds, 0, 1, _STREAM)[0]
        lanes.write(self.steps, (drawn * (self.most + 1)).long())

    def base_acts(self, length: Int[Tensor, " n"]) -> Bool[Tensor, " n"]:
        """Lanes in which the base acts alone. length: steps of the running episodes so far."""
        return length < self.steps
