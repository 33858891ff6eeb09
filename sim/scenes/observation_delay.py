"""Delayed observations: the last observations of n worlds, of which each world receives an older one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from robo_rl.core.protocols import Obs
from robo_rl.core.shapes import Bool, Int
from robo_rl.core.text.instruction import INSTRUCTION

ON_DEVICE = ("state", INSTRUCTION)  # observations in the engine's memory
_NAME = "late_"  # prefix of its keys in a snapshot


class ObservationDelay:
    """most: maximum delay in steps; with 0 observations pass through and nothing is kept.

    In the first steps of an episode the delayed observation is its first one.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._past: Obs = {}  # key -> (n, 1 + most, ...), newest first
        self._delay = torch.zeros(0, dtype=torch.int64)

    def begin(self, worlds: Int[Tensor, " k"], obs: Obs, delay: Int[Tensor, " k"]) -> None:
        """Start episodes in these of all n worlds, with first observations `obs` (n, ...)."""
        if self._most == 0:
            return
        for key, value in obs.items():
            filled = value.unsqueeze(1).repeat(1, 1 + self._most, *[1] * (value.ndim - 1))
            past = self._past.get(key)
            rows = worlds.to(value.device)  # pictures are in the host's memory, states on the engine's device
            self._past[key] = filled if past is None else past.index_copy(0, rows, filled[rows])
        old = (
            self._delay if len(self._delay) else torch.zeros(len(next(iter(obs.values()))), dtype=torch.int64)
        )
        self._delay = old.to(delay.device).index_copy(0, worlds, delay)

    def begin_where(self, mask: Bool[Tensor, " n"], obs: Obs, delay: Int[Tensor, " n"]) -> None:
        """`begin` in the worlds of a mask, by operations of fixed shape. delay: of all worlds."""
        if self._most == 0:
            return
        for key, value in obs.items():
            past = self._past[key]
            here = mask.view(-1, *[1] * (past.ndim - 1))
            self._past[key] = torch.where(here, value.unsqueeze(1), past)
        self._delay = torch.where(mask, delay, self._delay)

    def push(self, obs: Obs) -> Obs:
        """Push the observations `obs` (n, ...) of all worlds and return the delayed ones."""
        if self._most == 0:
            return obs
        for key, value in obs.items():
            self._past[key] = torch.cat([value.unsqueeze(1), self._past[key][:, :-1]], 1)
        return self.delayed()

    def delayed(self) -> Obs:
        """Last delayed observation."""
        rows = torch.arange(len(self._delay), device=self._delay.device)
        return {
            key: past[rows.to(past.device), self._delay.to(past.device)] for key, past in self._past.items()
        }

    def save(self) -> dict[str, Tensor]:
        kept = (
            {}
            if self._most == 0
            else {"delay": self._delay, **{f"obs.{key}": v for key, v in self._past.items()}}
        )
        return {_NAME + key: value.clone() for key, value in kept.items()}

    def load(self, saved: Mapping[str, Any], device: torch.device | None = None) -> None:
        """Restore from a snapshot, which may hold other keys. device: of `ON_DEVICE`; pictures, and places in
        them, stay in the host's memory.
        """
        mine = {
            key.removeprefix(_NAME): value.clone() for key, value in saved.items() if key.startswith(_NAME)
        }
        if mine:
            self._delay = mine.pop("delay").to(device)
            past = {key.removeprefix("obs."): value for key, value in mine.items()}
            self._past = {key: value.to(device) if key in ON_DEVICE else value for key, value in past.items()}
