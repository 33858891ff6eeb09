"""Condition that a vision-language-action policy makes of an observation, once per plan."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from robo_rl.core.shapes import Bool, Float


@dataclass(frozen=True)
class Cond:
    """Keys and values of a prefix of length L, layer by layer, and the state. Batch first in all tensors."""

    keys: tuple[Float[Tensor, "b k L d"], ...]  # k heads of dimension d
    values: tuple[Float[Tensor, "b k L d"], ...]
    mask: Bool[Tensor, "b L"]  # False: padding
    state: Float[Tensor, "b s"]  # normalised, flat; with a memory, followed by what it recalls
    pooled: Float[Tensor, "b f"]  # of the prefix, and the state: input of actors and critics
    moment: Float[Tensor, "b c"]  # what a memory keeps of this decision; c = 0 without one

    def __len__(self) -> int:
        return len(self.pooled)

    def repeat(self, times: int) -> Cond:
        """The batch, `times` times in a row."""
        return self._each(lambda value: value.repeat(times, *[1] * (value.ndim - 1)))

    def __getitem__(self, rows: Any) -> Cond:
        """These rows. rows: indices, a mask or a slice."""
        return self._each(lambda value: value[rows])

    def _each(self, change: Callable[[Tensor], Tensor]) -> Cond:
        keys, values = (tuple(map(change, layers)) for layers in (self.keys, self.values))
        flat = (change(each) for each in (self.mask, self.state, self.pooled, self.moment))
        return Cond(keys, values, *flat)
