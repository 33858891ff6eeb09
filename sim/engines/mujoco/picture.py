"""Pictures of scenes by MuJoCo's renderer, for every engine; renderers are made at the first picture."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import mujoco
import torch
from torch import Tensor

from robo_rl.core.errors import UnknownNameError
from sim.engines.protocol import Physics
from sim.engines.scene import Scene
from sim.engines.visual_randomisation import VisualRandomisation, plain

KINDS = ("rgb", "pretty", "depth", "rgbd", "segment")


class ScenePictures:
    """Renderers of one scene, one per size and camera. Put the state into `data`, run its kinematics, then
    `take`.
    """

    def __init__(self, model: Any) -> None:
        self._original = self._model = model
        self._shown: VisualRandomisation | None = None
        self._data: Any = None
        self._cameras = [model.camera(i).name for i in range(model.ncam)]
        self._renderers: dict[tuple[str, int, int, bool], Any] = {}

    @property
    def data(self) -> Any:
        if self._data is None:
            self._data = mujoco.MjData(self._model)
        return self._data

    def take(
        self,
        camera: str,
        height: int,
        width: int,
        kind: str = "rgb",
        visuals: VisualRandomisation | None = None,
    ) -> Tensor:
        """Picture as in `Engine.render`. Raises UnknownNameError for an unknown camera or kind."""
        from sim.render.renderer import MujocoRenderer

        if kind not in KINDS:
            raise UnknownNameError("kind of picture", kind, KINDS)
        if camera and camera not in self._cameras:
            raise UnknownNameError("camera", camera, self._cameras)
        if visuals is not self._shown:
            self._change(visuals)
        if visuals is not None:
            mujoco.mj_camlight(self._model, self.data)
        key = (camera, height, width, kind == "pretty")
        if key not in self._renderers:
            self._renderers[key] = MujocoRenderer(
                self._model, self.data, width, height, camera or None, pretty=kind == "pretty"
            )
        renderer = self._renderers[key]
        if kind in ("rgb", "pretty"):
            return torch.from_numpy(renderer.render())
        if kind == "rgbd":
            return torch.from_numpy(renderer.rgbd())
        return torch.from_numpy(renderer.depth_m() if kind == "depth" else renderer.bodies())

    def _change(self, visuals: VisualRandomisation | None) -> None:
        """Apply an appearance to a copy of the model: the scene's own model is shared."""
        if self._model is self._original:
            self.close()  # renderers keep the model that they were made with
            self._model = deepcopy(self._original)
        (plain(self._original) if visuals is None else visuals).show(self._model, self._original)
        self._shown = visuals

    def close(self) -> None:
        for renderer in self._renderers.values():
            renderer.close()
        self._renderers.clear()


def place_bodies(scene: Scene, physics: Physics, world: int, data: Any) -> None:
    """Set the bodies of `data` (mujoco.MjData) to those of a world, fixtures included."""
    data.qpos[:] = physics.qpos[world].cpu().numpy()
    for i, name in enumerate(scene.fixtures):
        row = scene.body(name)
        data.mocap_pos[i] = physics.body_m[world, row].cpu().numpy()
        data.mocap_quat[i] = physics.body_quat[world, row].cpu().numpy()
    mujoco.mj_kinematics(scene.model, data)
    mujoco.mj_camlight(scene.model, data)
