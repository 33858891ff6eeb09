"""Camera of the simulated arm's scene, for camera nodes."""

from __future__ import annotations

import mujoco
import numpy as np
from numpy import ndarray

from robo_rl.core.errors import UnknownNameError
from robo_rl.core.shapes import Float, UInt8
from sim.arms.arm6.body import SimulatedArm
from sim.render.renderer import MujocoRenderer


class ArmCamera:
    """Square pictures of `side_px`. Raises UnknownNameError for a camera that the scene does not have."""

    def __init__(self, body: SimulatedArm, name: str, side_px: int) -> None:
        known = [body.model.camera(i).name for i in range(body.model.ncam)]
        if name not in known:
            raise UnknownNameError("camera", name, known)
        self._body = body
        self._renderer = MujocoRenderer(body.model, body.data, side_px, side_px, name)

    def rgb(self) -> UInt8[ndarray, "h w 3"]:
        self._place()
        return self._renderer.render()

    def depth_m(self) -> Float[ndarray, "h w"]:
        """Depth along the camera's axis; the sky is at the far end of the rendered range."""
        self._place()
        return self._renderer.depth_m()

    def rgbd(self) -> tuple[UInt8[ndarray, "h w 3"], Float[ndarray, "h w"]]:
        """Colour and depth from one rendering."""
        self._place()
        both = self._renderer.rgbd()
        return both[..., :3].astype(np.uint8), np.ascontiguousarray(both[..., 3])

    def _place(self) -> None:
        """Update cameras and lights by the arm's kinematics."""
        mujoco.mj_camlight(self._body.model, self._body.data)
