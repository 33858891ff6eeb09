"""Images of MuJoCo simulations, fast on a CPU: no multisampling, shadows or reflections.

With software OpenGL these three take more than 90 % of the time of a frame; the sky takes none and keeps the
image bright. The facets of round shapes take half of the remaining time, so small images have fewer of them.
"""

from __future__ import annotations

import atexit
import weakref
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import mujoco
import numpy as np
from numpy.typing import NDArray

from sim.render.gl import make_context, unusable

_MAX_GEOMS = 2000
_SAMPLES = 4  # per pixel, with `pretty`
_SMALL_PX = 128  # images up to this size look the same with fine and coarse shapes
_FINE = {"numslices": 28, "numstacks": 16, "numquads": 4}  # MuJoCo's default
_COARSE = {"numslices": 12, "numstacks": 8, "numquads": 1}


class MujocoRenderer:
    """Renders one simulation offscreen. `camera`: a camera of the model, or None for a free one.

    `view` sets attributes of the free camera (distance, azimuth, elevation, lookat, trackbodyid). `pretty`
    adds shadows, reflections and smooth edges, many times slower. `upright` turns images of a camera that is
    mounted upside down by half a turn. Do not use it for a moving camera or for point clouds: the up axis of
    a camera that looks straight down is horizontal, and small motions would flip the image. `sites`: False
    hides the model's sites, such as marks of goals.
    """

    def __init__(
        self,
        model: Any,
        data: Any,
        width: int,
        height: int,
        camera: str | None = None,
        view: Mapping[str, Any] | None = None,
        pretty: bool = False,
        upright: bool = False,
        sites: bool = True,
    ) -> None:
        self._model, self._data, self._turns = model, data, upright
        self._context: Any = make_context(width, height)
        self._context.make_current()
        self._gpu = _on_gpu(model, width, height, pretty)
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN, self._gpu)
        self._scene = mujoco.MjvScene(model, _MAX_GEOMS)
        self._scene.flags[mujoco.mjtRndFlag.mjRND_SHADOW] = pretty
        self._scene.flags[mujoco.mjtRndFlag.mjRND_REFLECTION] = pretty
        self._options, self._perturbation = mujoco.MjvOption(), mujoco.MjvPerturb()
        if not sites:
            self._options.sitegroup[:] = 0
        self._camera = _camera(model, camera, view or {})
        self._viewport = mujoco.MjrRect(0, 0, width, height)
        self._pixels = np.empty((height, width, 3), np.uint8)
        self._deep = np.empty((height, width), np.float32)
        # Registered after EGL's exit function, so it runs before it: a context must not outlive its display.
        self._at_exit = partial(_close_if_alive, weakref.ref(self))
        atexit.register(self._at_exit)

    def render(self) -> NDArray[np.uint8]:
        """New image (h, w, 3), top line first, of the positions from the last kinematics."""
        self._draw()
        mujoco.mjr_readPixels(self._pixels, None, self._viewport, self._gpu)
        return self._upright(self._pixels)

    def render_of(self, model: Any, data: Any, camera: str, upright: bool = False) -> NDArray[np.uint8]:
        """`render` of another simulation of the same model, whose bodies may be elsewhere, through one of its
        cameras; upright: as for the constructor, for this picture.
        """
        self._model, self._data, self._camera = model, data, _camera(model, camera, {})
        self._turns = upright
        return self.render()

    def depth_m(self) -> NDArray[np.float32]:
        """Distance (h, w) along the camera's axis [m]; the sky has the distance of the far plane."""
        self._draw()
        mujoco.mjr_readPixels(None, self._deep, self._viewport, self._gpu)
        return self._metres()

    def rgbd(self) -> NDArray[np.float32]:
        """Red, green, blue as in `render` and depth as in `depth_m` (h, w, 4), from one drawing."""
        self._draw()
        mujoco.mjr_readPixels(self._pixels, self._deep, self._viewport, self._gpu)
        return np.concatenate(
            [self._upright(self._pixels), self._metres()[..., None]], axis=-1, dtype=np.float32
        )

    def _metres(self) -> NDArray[np.float32]:
        """The depth buffer that was read last, in metres."""
        near_m = self._model.vis.map.znear * self._model.stat.extent
        far_m = self._model.vis.map.zfar * self._model.stat.extent
        # The depth buffer holds z = (1 / near - 1 / d) / (1 / near - 1 / far).
        return self._upright(near_m / (1.0 - self._deep * (1.0 - near_m / far_m))).astype(np.float32)

    def bodies(self) -> NDArray[np.int32]:
        """Index (h, w) of the body in each pixel, -1 for the sky."""
        flags = self._scene.flags
        flags[mujoco.mjtRndFlag.mjRND_SEGMENT] = flags[mujoco.mjtRndFlag.mjRND_IDCOLOR] = True
        self._draw()
        flags[mujoco.mjtRndFlag.mjRND_SEGMENT] = flags[mujoco.mjtRndFlag.mjRND_IDCOLOR] = False
        mujoco.mjr_readPixels(self._pixels, None, self._viewport, self._gpu)
        number = self._upright(self._pixels).astype(np.int32) @ np.array([1, 1 << 8, 1 << 16], np.int32)
        # 0 is the background, 1 + i the i-th shape of the scene.
        owner = np.full(self._scene.ngeom + 1, -1, np.int32)
        for shape in self._scene.geoms[: self._scene.ngeom]:
            if int(shape.objtype) == int(mujoco.mjtObj.mjOBJ_GEOM):
                owner[shape.segid + 1] = self._model.geom_bodyid[shape.objid]
        seen: NDArray[np.int32] = owner[number]
        return seen

    def _draw(self) -> None:
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

    def _upright(self, picture: NDArray[Any]) -> NDArray[Any]:
        """A copy with the top line first: OpenGL's first line is the lowest."""
        turned = self._turns and self._is_upside_down()
        return np.ascontiguousarray(picture[:, ::-1] if turned else picture[::-1])

    def close(self) -> None:
        """Free the context. May be called twice."""
        atexit.unregister(self._at_exit)
        if self._context is not None:
            self._context.make_current()
            self._gpu.free()
            self._context.free()
            self._context = None

    def _is_upside_down(self) -> bool:
        """True where the camera's up axis, second column of its rotation (camera -> world), points down."""
        fixed = self._camera.type == mujoco.mjtCamera.mjCAMERA_FIXED
        return bool(fixed and self._data.cam_xmat[self._camera.fixedcamid].reshape(3, 3)[2, 1] < 0)


def _close_if_alive(reference: weakref.ref[MujocoRenderer]) -> None:
    if (renderer := reference()) is not None:
        renderer.close()


def _on_gpu(model: Any, width: int, height: int, pretty: bool) -> Any:
    """OpenGL context with the model's shapes and an offscreen buffer of this size; the model is unchanged."""
    visual = model.vis
    facets = _COARSE if max(width, height) <= _SMALL_PX and not pretty else _FINE
    wanted = [
        (visual.global_, {"offwidth": width, "offheight": height}),
        (visual.quality, {"offsamples": _SAMPLES if pretty else 0, **facets}),
    ]
    before = [{name: getattr(part, name) for name in values} for part, values in wanted]
    _set(wanted)
    try:
        return mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_100)
    except mujoco.FatalError as error:
        raise unusable(error) from error
    finally:
        _set([(part, values) for (part, _), values in zip(wanted, before, strict=True)])


def _set(parts: Sequence[tuple[Any, Mapping[str, int]]]) -> None:
    for part, values in parts:
        for name, value in values.items():
            setattr(part, name, value)


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
