"""ScenePictures of scenes by MuJoCo's renderer, whichever engine moves the bodies; made when the first is asked for."""

from __future__ import annotations

from typing import Any

import mujoco
import torch
from torch import Tensor

from robo_rl.core.errors import UnknownNameError

KINDS = ("rgb", "depth", "segment")


class ScenePictures:
    """Put the state to show into `data`, kinematics done, then `take`. One renderer per size and camera."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._data: Any = None
        self._renderers: dict[tuple[str, int, int], Any] = {}

    @property
    def data(self) -> Any:
        if self._data is None:
            self._data = mujoco.MjData(self._model)
        return self._data

    def take(self, camera: str, height: int, width: int, kind: str = "rgb") -> Tensor:
        """As `Engine.render`."""
        from sim.rendering import MujocoRenderer

        if kind not in KINDS:
            raise UnknownNameError("kind of picture", kind, KINDS)
        cameras = [self._model.camera(i).name for i in range(self._model.ncam)]
        if camera not in cameras:
            raise UnknownNameError("camera", camera, cameras)
        key = (camera, height, width)
        if key not in self._renderers:
            self._renderers[key] = MujocoRenderer(self._model, self.data, width, height, camera)
        renderer = self._renderers[key]
        if kind == "rgb":
            return torch.from_numpy(renderer.render())
        return torch.from_numpy(renderer.depth_m() if kind == "depth" else renderer.bodies())

    def close(self) -> None:
        for renderer in self._renderers.values():
            renderer.close()
        self._renderers.clear()
