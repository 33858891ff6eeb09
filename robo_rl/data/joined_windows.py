"""Training windows of several datasets with the same observations and actions, one after the other."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch.utils.data import Dataset

from robo_rl.data.windows import Batch, WindowBatch, WindowDataset


class JoinedWindows(Dataset[Batch]):
    """Window i is that of the first dataset for i below its length, then those of the second, and so on."""

    def __init__(self, parts: Sequence[WindowDataset]) -> None:
        self._parts = list(parts)
        self._ends = np.cumsum([len(part) for part in self._parts])

    def __len__(self) -> int:
        return int(self._ends[-1])

    def __getitem__(self, index: int) -> Batch:
        return {key: value[0] for key, value in self.gather([index]).items()}

    def __getitems__(self, indices: Sequence[int]) -> WindowBatch:
        return WindowBatch(self.gather(indices))

    def gather(self, indices: Sequence[int]) -> Batch:
        """Windows in the order of `indices`; see `WindowDataset.gather`."""
        index = np.asarray(indices, dtype=np.int64)
        owner = np.searchsorted(self._ends, index, side="right")
        rows: list[Batch] = []
        places: list[torch.Tensor] = []
        for number in np.unique(owner).tolist():
            place = np.flatnonzero(owner == number)
            first = self._ends[number] - len(self._parts[number])
            rows.append(self._parts[number].gather(index[place] - first))
            places.append(torch.from_numpy(place))
        back = torch.argsort(torch.cat(places))
        return {key: torch.cat([part[key] for part in rows])[back] for key in rows[0]}
