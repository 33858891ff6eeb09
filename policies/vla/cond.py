"""What a vision-language-action policy makes of an observation, once per plan."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from robo_rl.core.shapes import Bool, Float


@dataclass(frozen=True)
class Cond:
    """Keys and values of a prefix of length L, layer by layer, and the state. Batch first in all tensors."""

    keys: tuple[Float[Tensor, "b k L d"], ...]  # k heads of dimension d
    values: tuple[Float[Tensor, "b k L d"], ...]
    mask: Bool[Tensor, "b L"]  # False: padding
    state: Float[Tensor, "b s"]  # normalised, flat
    pooled: Float[Tensor, "b c"]  # mean of the prefix's outputs, and the state: input of actors and critics

    def __len__(self) -> int:
        return len(self.pooled)

    def repeat(self, times: int) -> Cond:
        """The batch, `times` times in a row."""

        def copies(value: Tensor) -> Tensor:
            return value.repeat(times, *[1] * (value.ndim - 1))

        keys, values = (tuple(map(copies, layers)) for layers in (self.keys, self.values))
        return Cond(keys, values, copies(self.mask), copies(self.state), copies(self.pooled))
