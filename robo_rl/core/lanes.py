"""Selection of lanes (parallel environments), in a form that suits the device.

On the host, the selected lanes are taken out: work is done for them alone. On a GPU their number is unknown
to the host, and reading it would stop the pipeline at every step: there, all lanes are computed and a mask
keeps the results of the others. `Lanes` has both forms, so that one code runs on both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from robo_rl.core.shapes import Bool, Int

Rows = TypeVar("Rows")


@dataclass(frozen=True, slots=True)
class Lanes:
    """k of n lanes.

    ids: their indices. mask: None if all of `ids` are selected, else the selected ones; `ids` are all lanes
    then. every: `ids` are all lanes, in order. masked: the form of parts of this selection.
    """

    ids: Int[Tensor, " k"]
    mask: Bool[Tensor, " k"] | None = None
    every: bool = False
    masked: bool = False

    @classmethod
    def all(cls, num: int, device: torch.device | str = "cpu", *, masked: bool | None = None) -> Lanes:
        """All lanes. masked: the form of selections from these; None: masked except on the CPU."""
        device = torch.device(device)
        form = device.type != "cpu" if masked is None else masked
        return cls(torch.arange(num, device=device), None, True, form)

    @classmethod
    def of(cls, ids: Int[Tensor, " k"]) -> Lanes:
        """These lanes."""
        return cls(ids)

    def __len__(self) -> int:
        """Number of rows that are computed: k, or all lanes in the masked form. 0: nothing to do."""
        return len(self.ids)

    def where(self, mask: Bool[Tensor, " k"]) -> Lanes:
        """Those of these lanes at which `mask` is true."""
        if not self.masked:
            return Lanes(self.ids[mask])
        return Lanes(self.ids, mask if self.mask is None else self.mask & mask, self.every, True)

    def rows(self, values: Tensor, mask: Bool[Tensor, " k"]) -> Tensor:
        """Rows of (k, ...) values that belong to the lanes of `where(mask)`."""
        return values if self.masked else values[mask]

    def read(self, values: Rows) -> Rows:
        """Rows of these lanes, from the values (n, ...) of all lanes; a view if these are all lanes.

        values: a tensor, or a tree of tensors that is indexed like one.
        """
        return values if self.every else values[self.ids]  # type: ignore[index]

    def write(self, values: Tensor, rows: Tensor | float) -> None:
        """Overwrite these lanes in the values (n, ...) of all lanes. rows: (k, ...), or one number."""
        if self.mask is not None:
            mask = self.mask.view(-1, *[1] * (values.dim() - 1))
            values.copy_(torch.where(mask, rows, values))
        elif self.every:
            values[:] = rows
        else:
            values[self.ids] = rows

    def add(self, values: Int[Tensor, " n"], amount: int) -> None:
        """Add a number to the counters of these lanes."""
        self.write(values, self.read(values) + amount)

    def put(self, table: Tensor, column: Int[Tensor, " k"], rows: Tensor) -> None:
        """Write table[lane, column of the lane] of these lanes. table: (n, columns, ...)."""
        if self.mask is not None:
            mask = self.mask.view(-1, *[1] * (rows.dim() - 1))
            rows = torch.where(mask, rows, table[self.ids, column])
        table[self.ids, column] = rows
