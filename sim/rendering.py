"""Pictures of MuJoCo simulations, fast on a CPU: no multisampling, shadows or reflections, but with the sky.

On software OpenGL these three cost more than 90 % of the time of a frame; the sky costs nothing and keeps the picture
bright.
"""

from __future__ import annotations

import atexit
import weakref
from collections.abc import Mapping
from functools import partial
from typing import Any

import mujoco
import numpy as np
from numpy.typing import NDArray

from sim.gl import make_context, unusable

_MAX_GEOMS = 2000


class MujocoRenderer:
    """Renders one simulation offscreen. `camera`: a camera of the model, or None for a free one.

    `view` sets attributes of the free camera (distance, azimuth, elevation, lookat, trackbodyid).
    """

    def __init__(
        self,
        model: Any,
        data: Any,
        width: int,
        height: int,
        camera: str | None = None,
        view: Mapping[str, Any] | None = None,
    ) -> None:
        self._model, self._data = model, data
        visual = model.vis
        visual.global_.offwidth = max(visual.global_.offwidth, width)
        visual.global_.offheight = max(visual.global_.offheight, height)
        visual.quality.offsamples = 0
        self._context: Any = make_context(visual.global_.offwidth, visual.global_.offheight)
        self._context.make_current()
        try:
            self._gpu = mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_100)
        except mujoco.FatalError as error:
            raise unusable(error) from error
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN, self._gpu)
        self._scene = mujoco.MjvScene(model, _MAX_GEOMS)
        self._scene.flags[mujoco.mjtRndFlag.mjRND_SHADOW] = False
        self._scene.flags[mujoco.mjtRndFlag.mjRND_REFLECTION] = False
        self._options, self._perturbation = mujoco.MjvOption(), mujoco.MjvPerturb()
        self._camera = _camera(model, camera, view or {})
        self._viewport = mujoco.MjrRect(0, 0, width, height)
        self._pixels = np.empty((height, width, 3), np.uint8)
        # Registered after EGL's own exit function, so run before it: a context must not outlive its display.
        self._at_exit = partial(_close_if_alive, weakref.ref(self))
        atexit.register(self._at_exit)

    def render(self) -> NDArray[np.uint8]:
        """(h, w, 3), the first row on top; fresh. Reads the positions that the last kinematics left."""
        self._context.make_current()
        mujoco.mjv_updateScene(
            self._model,
            self._data,
            self._options,
            self._perturbation,
            self._camera,
            mujoco.mjtCatBit.mjCAT_ALL,
            self._scene,
        )
        mujoco.mjr_render(self._viewport, self._scene, self._gpu)
        mujoco.mjr_readPixels(self._pixels, None, self._viewport, self._gpu)
        # OpenGL's first row is the lowest; a camera mounted upside down (MetaWorld's corner2) is turned by half a turn.
        upright = self._pixels[:, ::-1] if self._is_upside_down() else self._pixels[::-1]
        return np.ascontiguousarray(upright)

    def close(self) -> None:
        """Free the context. May be called twice."""
        atexit.unregister(self._at_exit)
        if self._context is not None:
            self._context.make_current()
            self._gpu.free()
            self._context.free()
            self._context = None

    def _is_upside_down(self) -> bool:
        """Does the camera's own up axis (second column of its rotation, camera -> world) point to the ground?"""
        fixed = self._camera.type == mujoco.mjtCamera.mjCAMERA_FIXED
        return bool(fixed and self._data.cam_xmat[self._camera.fixedcamid].reshape(3, 3)[2, 1] < 0)


def _close_if_alive(reference: weakref.ref[MujocoRenderer]) -> None:
    if (renderer := reference()) is not None:
        renderer.close()


def _camera(model: Any, name: str | None, view: Mapping[str, Any]) -> Any:
    camera = mujoco.MjvCamera()
    if name is not None:
        camera.type = mujoco.mjtCamera.mjCAMERA_FIXED
        camera.fixedcamid = model.camera(name).id
        return camera
    mujoco.mjv_defaultFreeCamera(model, camera)
    if "trackbodyid" in view:
        camera.type = mujoco.mjtCamera.mjCAMERA_TRACKING
    for key, value in view.items():
        if key == "lookat":
            camera.lookat[:] = value
        else:
            setattr(camera, key, value)
    return camera
