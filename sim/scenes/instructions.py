"""Observations of tasks with an instruction: the words, and where to act in each picture."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from robo_rl.core.errors import ConfigError
from robo_rl.core.protocols import Obs
from robo_rl.core.shapes import Int64
from robo_rl.core.spec import ArraySpec, target_of
from robo_rl.core.text.instruction import INSTRUCTION, INSTRUCTION_SPEC
from sim.bodies.protocol import SceneTask
from sim.scenes.cameras import Cameras
from sim.tasks.table import TaskOptions
from sim.tasks.variants import InstructedTask, wording_of

_PLACE = ArraySpec((2,), "float32", "x right, y down, edges at 1")


class Instructions:
    """`instruction` (n, 128) uint8 of each episode, and `target.<camera>` (n, 2), the place in each picture
    of what it names. Nothing for a task that has no instruction.

    Raises UnknownNameError for an unknown set of wordings, and ConfigError for one of a task without any.
    """

    def __init__(self, task: SceneTask, cameras: Cameras, options: TaskOptions, device: torch.device) -> None:
        self._task, self._cameras = task if isinstance(task, InstructedTask) else None, cameras
        self.variants = None if self._task is None else self._task.variants
        if self.variants is None:
            if options.wordings != "training":
                raise ConfigError(f"{task.name} is one task, without wordings; leave wordings= out.")
            return
        self._texts = self.variants.encoded(options.wordings).to(device)

    @property
    def specs(self) -> dict[str, ArraySpec]:
        if self.variants is None:
            return {}
        return {
            INSTRUCTION: INSTRUCTION_SPEC,
            **dict.fromkeys(map(target_of, self._cameras.pictures), _PLACE),
        }

    def info(self, seeds: Int64[Tensor, " n"]) -> dict[str, Tensor]:
        """`task` (n,), the number of the named variant."""
        return {} if self.variants is None else {"task": self.variants.number_of(seeds)}

    def of(self, view: Any, seeds: Int64[Tensor, " n"]) -> Obs:
        """Observations of the worlds that are seen in `view`, by the seeds of their episodes."""
        if self._task is None or self.variants is None:
            return {}
        words = self._texts[self.variants.number_of(seeds), wording_of(seeds, self._texts.shape[1])]
        place_m = self._task.target_m(view)
        places = self._cameras.places(view.physics, place_m)
        return {INSTRUCTION: words, **{target_of(key): place for key, place in places.items()}}
