"""Starts and commands of worlds: a world is a pure function of them, so nothing else is saved."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from numpy import ndarray
from torch import Tensor

from robo_rl.core.shapes import Float
from sim.engines.protocol import Start

_STARTS = ("start_qpos", "start_qvel", "start_fixtures", "start_ctrl")
_ROOM = 64  # steps to begin with; doubled when they are full


class ReplayLog:
    """Starts and commands of n worlds; `nq`, `nv`, `nu`, `nf` as in a scene. A start drops the commands."""

    def __init__(self, num: int, nq: int, nv: int, nu: int, nf: int) -> None:
        shapes = ((num, nq), (num, nv), (num, nf, 7), (num, nu))
        self._starts = {name: np.zeros(shape) for name, shape in zip(_STARTS, shapes, strict=True)}
        self._commands, self._substeps = np.zeros((num, _ROOM, nu)), np.zeros((num, _ROOM), dtype=np.int64)
        self._age = [0] * num

    def begin(self, world: int, qpos: ndarray, qvel: ndarray, fixtures: ndarray, ctrl: ndarray) -> None:
        for kept, value in zip(self._starts.values(), (qpos, qvel, fixtures, ctrl), strict=True):
            kept[world] = value
        self._age[world] = 0
        self._substeps[world] = 0

    def add(self, world: int, ctrl: Float[ndarray, " nu"], substeps: int) -> None:
        age = self._age[world]
        if age == self._substeps.shape[1]:
            self._commands, self._substeps = (_twice(each) for each in (self._commands, self._substeps))
        self._commands[world, age], self._substeps[world, age] = ctrl, substeps
        self._age[world] = age + 1

    def save(self) -> dict[str, Tensor]:
        """Snapshot: rows are worlds, columns steps; zero sub-steps where a world is younger
        than the oldest.
        """
        oldest = max(self._age)
        log = {"commands": self._commands[:, :oldest], "substeps": self._substeps[:, :oldest]}
        return {name: torch.from_numpy(each.copy()) for name, each in (self._starts | log).items()}

    @staticmethod
    def read(saved: Mapping[str, Tensor]) -> tuple[Start, list[list[ndarray]], list[list[int]]]:
        """Starts, commands and sub-steps of all worlds."""
        fixtures, commands, substeps = (
            saved["start_fixtures"],
            saved["commands"].numpy(),
            saved["substeps"].tolist(),
        )
        ctrl = saved.get("start_ctrl")  # older snapshots have none; it matters to servos that lag
        ctrl = saved["commands"].new_zeros(len(commands), commands.shape[-1]) if ctrl is None else ctrl
        start = Start(saved["start_qpos"], ctrl, fixtures[..., :3], fixtures[..., 3:], saved["start_qvel"])
        ages = [sum(count > 0 for count in row) for row in substeps]
        sent = [list(row[:age]) for row, age in zip(commands, ages, strict=True)]
        return start, sent, [row[:age] for row, age in zip(substeps, ages, strict=True)]


def _twice(array: ndarray) -> ndarray:
    return np.concatenate([array, np.zeros_like(array)], axis=1)
