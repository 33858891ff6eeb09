"""Where worlds began and what they were told since: a world is a pure function of it, so it is all to keep."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from torch import Tensor

from sim.engines.protocol import Start

_STARTS = ("start_qpos", "start_qvel", "start_fixtures")


class Past:
    """Of n worlds. Commands are kept until a world begins anew: 72 bytes for each step of nine servos."""

    def __init__(self, num: int, servos: int) -> None:
        self._servos = servos
        self._starts: list[tuple[ndarray, ...]] = [()] * num
        self._commands: list[list[ndarray]] = [[] for _ in range(num)]
        self._substeps: list[list[int]] = [[] for _ in range(num)]

    def begin(self, world: int, qpos: ndarray, qvel: ndarray, fixtures: ndarray) -> None:
        self._starts[world] = (qpos.copy(), qvel.copy(), fixtures.copy())
        self._commands[world], self._substeps[world] = [], []

    def add(self, world: int, ctrl: Float[ndarray, " nu"], substeps: int) -> None:
        self._commands[world].append(ctrl)
        self._substeps[world].append(substeps)

    def save(self) -> dict[str, Tensor]:
        """Rows are worlds, columns steps; zero sub-steps where a world is younger than the oldest."""
        longest = max(map(len, self._commands))
        commands = np.zeros((len(self._commands), longest, self._servos))
        substeps = np.zeros(commands.shape[:2], dtype=np.int64)
        for world, mine in enumerate(self._commands):
            if mine:
                commands[world, : len(mine)], substeps[world, : len(mine)] = mine, self._substeps[world]
        columns = zip(*self._starts, strict=True)
        starts = {name: torch.from_numpy(np.stack(rows)) for name, rows in zip(_STARTS, columns, strict=True)}
        return starts | {"commands": torch.from_numpy(commands), "substeps": torch.from_numpy(substeps)}

    @staticmethod
    def read(saved: Mapping[str, Tensor]) -> tuple[Start, list[list[ndarray]], list[list[int]]]:
        """(starts, commands, sub-steps) of all worlds."""
        fixtures, commands, substeps = saved["start_fixtures"], saved["commands"].numpy(), saved["substeps"].tolist()
        ctrl = saved["commands"].new_zeros(len(commands), commands.shape[-1])
        start = Start(saved["start_qpos"], ctrl, fixtures[..., :3], fixtures[..., 3:], saved["start_qvel"])
        ages = [sum(count > 0 for count in row) for row in substeps]
        told = [list(row[:age]) for row, age in zip(commands, ages, strict=True)]
        return start, told, [row[:age] for row, age in zip(substeps, ages, strict=True)]
