"""Rendered images of one lane, with a renderer created on first use: most lanes are never rendered."""

from __future__ import annotations

from collections.abc import Mapping
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
