"""Body that a task of the suite `mobile` commands: a base, or a base with an arm on it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import Tensor

from robo_rl.core.errors import UnknownNameError
from sim.bodies.protocol import Drive
from sim.engines.scene import Scene
from sim.mobile.base import load_base
from sim.mobile.drive import MODES, BaseDrive, BaseTask
from sim.mobile.manipulator import ARM, ManipulatorDrive, ManipulatorTask


class MobileBody:
    """The base `options.robot`; a task with a tool's reach mounts the Panda-like arm on it. See
    `sim.bodies.protocol.Body`.
    """

    def __init__(self, task: BaseTask | ManipulatorTask, options: Any) -> None:
        if options.control not in MODES:
            raise UnknownNameError("control of a base", options.control, MODES)
        self._task, self._base = task, load_base(options.robot)

    @property
    def path(self) -> Path:
        return self._base.path

    def drive(self, scene: Scene, like: Tensor) -> Drive:
        if isinstance(self._task, ManipulatorTask):
            return ManipulatorDrive(scene, self._base, ARM, self._task, like)
        return BaseDrive(scene, self._base, self._task, like)
