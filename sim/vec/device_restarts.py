"""Bookkeeping of worlds that end and start again without the host's knowledge."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import torch
from torch import Tensor

from robo_rl.core.errors import EnvError
from robo_rl.core.shapes import Bool, Float
from robo_rl.core.spec import EnvSpec
from sim.vec.seed_queue import REFILL_EVERY, SeedQueue


class DeviceRestarts:
    """Seeds of the next episodes, and the checks that are looked at every `REFILL_EVERY` steps only."""

    def __init__(self, seeds: Iterator[int], num_envs: int, device: torch.device) -> None:
        self.seeds = SeedQueue(seeds, num_envs, device)
        self._unusable = torch.zeros((), dtype=torch.long, device=device)  # actions that are not finite
        self._diverged = torch.zeros((), dtype=torch.long, device=device)  # episodes
        self._steps = 0

    def clipped(self, action: Float[Tensor, "n a"], spec: EnvSpec) -> Float[Tensor, "n a"]:
        """Actions inside the limits. Those that are not finite become 0 and are reported later."""
        finite = torch.isfinite(action)
        self._unusable = self._unusable + (~finite).any(1).sum()
        unit = spec.action.normalize(torch.where(finite, action, 0.0))
        return spec.action.denormalize(unit)

    def note(self, diverged: Bool[Tensor, " n"] | None, name: str) -> None:
        """Count worlds whose physics failed in this step; None where that cannot happen.

        Raises EnvError if actions since the last look were not finite; warns of physics that failed.
        """
        if diverged is not None:
            self._diverged = self._diverged + diverged.sum()
        self._steps += 1
        if self._steps % REFILL_EVERY:
            return
        unusable, failed = torch.stack([self._unusable, self._diverged]).tolist()
        self._unusable, self._diverged = torch.zeros_like(self._unusable), torch.zeros_like(self._diverged)
        if unusable:
            raise EnvError(
                f"{unusable} actions of the last {REFILL_EVERY} steps in {name} were not finite. The policy "
                "has diverged: check its inputs, its normaliser and its learning rate."
            )
        if failed:
            warnings.warn(
                f"{name}: the physics of {failed} episodes has failed in the last {REFILL_EVERY} steps, "
                "their speeds were beyond reason; they ended as failures. To find them, run the task with "
                "device=cpu.",
                RuntimeWarning,
                stacklevel=4,
            )
