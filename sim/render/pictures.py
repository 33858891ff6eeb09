"""Rendered images of one lane, with a renderer created on first use: most lanes are never rendered."""

from __future__ import annotations

import weakref
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
    """Square pictures of `size_px` through several cameras of one simulation.

    All simulations of the same `scene` in this process share one renderer: their shapes and textures must be
    equal, their bodies may be elsewhere. With software OpenGL, to make a renderer takes seconds.

    Pictures of cameras that are fixed to the world and mounted upside down are turned. Sites, which mark
    goals, are hidden.
    """

    def __init__(self, scene: str, model: Any, data: Any, size_px: int, cameras: Sequence[str]) -> None:
        self._scene, self._model, self._data, self._size_px = scene, model, data, size_px
        # By name: turned where needed. Cameras of moving bodies are not: see MujocoRenderer.
        self._cameras = {name: int(model.camera(name).bodyid[0]) == 0 for name in cameras}
        self._shared: _Shared | None = None

    def take(self) -> dict[str, NDArray[np.uint8]]:
        """`image.<camera>` (s, s, 3) of each camera, s = size_px, of the positions in the simulation's data.

        Raises MissingDependencyError where no OpenGL works.
        """
        import mujoco

        mujoco.mj_kinematics(self._model, self._data)
        mujoco.mj_camlight(self._model, self._data)  # cameras on moving bodies
        if self._shared is None:
            self._shared = _shared(
                self._scene, self._model, self._data, self._size_px, next(iter(self._cameras))
            )
        picture = self._shared.renderer.render_of
        return {
            f"image.{name}": picture(self._model, self._data, name, upright)
            for name, upright in self._cameras.items()
        }

    def close(self) -> None:
        """Free the renderer if nobody else uses it; the next pictures get a new one. May be called twice."""
        self._shared = None


class _Shared:
    """A renderer that is closed when its last holder is gone."""

    def __init__(self, renderer: MujocoRenderer) -> None:
        self.renderer = renderer
        weakref.finalize(self, renderer.close)


_SHARED: weakref.WeakValueDictionary[tuple[str, int], _Shared] = weakref.WeakValueDictionary()


def _shared(scene: str, model: Any, data: Any, size_px: int, camera: str) -> _Shared:
    """The renderer of this scene and size in this process; a new one if there is none."""
    found = _SHARED.get((scene, size_px))
    if found is None:
        from sim.render.renderer import MujocoRenderer

        renderer = MujocoRenderer(model, data, size_px, size_px, camera, sites=False)
        found = _SHARED[scene, size_px] = _Shared(renderer)
    return found
