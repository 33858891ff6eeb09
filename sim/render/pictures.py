"""Rendered images of one lane, with a renderer created on first use: most lanes are never rendered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:  # MuJoCo and OpenGL are loaded with the first image
    from sim.render.renderer import MujocoRenderer


class LaneRenderer:
    """Square images of `size_px`. camera, view, upright: as in `sim.render.renderer.MujocoRenderer`."""

    def __init__(
        self, model: Any, data: Any, size_px: int, camera: str | None = None, view: Mapping[str,
        Any] | None = None, upright: bool = False,
    ) -> None:  # fmt: skip
        self._made_of, self._upright = (model, data, size_px, size_px, camera, view), upright
        self._renderer: MujocoRenderer | None = None

    def render(self) -> NDArray[np.uint8]:
        """Image (s, s, 3), s = size_px. Raises MissingDependencyError where no OpenGL works."""
        if self._renderer is None:
            from sim.render.renderer import MujocoRenderer

            self._renderer = MujocoRenderer(*self._made_of, upright=self._upright)
        return self._renderer.render()

    def close(self) -> None:
        """Free the renderer, if there is one; the next image creates a new one. May be called twice."""
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None


class CameraPictures:
    """Square pictures of `size_px` through several cameras of one simulation, with one renderer for all.

    Pictures of cameras that are fixed to the world and mounted upside down are turned. Sites, which mark
    goals, are hidden.
    """

    def __init__(self, model: Any, data: Any, size_px: int, cameras: Sequence[str]) -> None:
        self._model, self._data, self._size_px, self._names = model, data, size_px, tuple(cameras)
        self._renderers: dict[bool, MujocoRenderer] = {}  # by whether they turn pictures

    def take(self) -> dict[str, NDArray[np.uint8]]:
        """`image.<camera>` (s, s, 3) of each camera, s = size_px, of the positions in the simulation's data.

        Raises MissingDependencyError where no OpenGL works.
        """
        import mujoco

        mujoco.mj_kinematics(self._model, self._data)
        mujoco.mj_camlight(self._model, self._data)  # cameras on moving bodies
        return {f"image.{name}": self._through(name) for name in self._names}

    def close(self) -> None:
        """Free the renderers; the next pictures create new ones. May be called twice."""
        for renderer in self._renderers.values():
            renderer.close()
        self._renderers.clear()

    def _through(self, name: str) -> NDArray[np.uint8]:
        fixed = int(self._model.camera(name).bodyid[0]) == 0
        if fixed not in self._renderers:
            from sim.render.renderer import MujocoRenderer

            size = self._size_px, self._size_px
            self._renderers[fixed] = MujocoRenderer(
                self._model, self._data, *size, name, upright=fixed, sites=False
            )
        self._renderers[fixed].look_through(name)
        return self._renderers[fixed].render()
