"""Camera that looks down on a floor with markers, drawn by PyBullet's software renderer; it has no physics.

The floor is the same in every episode: rectangles of different greys, sizes and directions, so that a picture
determines its position. Lighting and sensors differ: every camera has its own gain, every picture its own
noise.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass

import numpy as np
from numpy import ndarray

from robo_rl.core.errors import ConfigError
from robo_rl.core.shapes import Bool, Float, UInt8
from sim.engines.bullet.body import make_drone, make_shapes
from sim.engines.bullet.camera import look_from
from sim.engines.bullet.client import load_pybullet
from sim.engines.quad.craft import Craft

NEAR_M, FAR_M = 0.02, 20.0
_FLOOR_M = 4.0  # half of its side
_GREY = 0.72  # of the floor
_LUMA = np.array([0.299, 0.587, 0.114])


@dataclass(frozen=True, slots=True)
class FloorCamera:
    """A small grey camera under the craft, and the floor it sees."""

    px: int = 48
    fov_deg: float = 80.0
    markers: int = 40
    spread_m: float = 1.4  # markers lie within this of the middle
    map_seed: int = 7  # which floor
    gain: float = 0.2  # half-width of the cameras' brightness
    noise: float = 4.0  # standard deviation of a pixel, of 255


class FloorView:
    """Pictures from poses. Owns a connection to PyBullet, in which nothing moves."""

    def __init__(self, eye: FloorCamera, floor_m: float) -> None:
        if not 16 <= eye.px <= 256:
            raise ConfigError(f"px = {eye.px} is out of bounds: a camera of 16 ... 256 pixels to a side.")
        self.eye = eye
        self._p = p = load_pybullet()
        self._client = client = int(p.connect(p.DIRECT))
        self._shown: int | None = None
        self._finalizer = weakref.finalize(self, p.disconnect, client)
        self._lens = p.computeProjectionMatrixFOV(eye.fov_deg, 1.0, NEAR_M, FAR_M)
        for place, half, turn, grey in markers(eye):
            look = p.createVisualShape(
                p.GEOM_BOX, halfExtents=[*half, 0.001], rgbaColor=[grey] * 3 + [1.0], physicsClientId=client
            )
            quat = p.getQuaternionFromEuler([0.0, 0.0, turn])
            p.createMultiBody(
                0, -1, look, [place[0], place[1], floor_m + place[2]], quat, physicsClientId=client
            )

    def close(self) -> None:
        self._finalizer()

    def show(self, craft: Craft) -> None:
        """Put a craft into the scene, for `from_outside`; the onboard camera would see its own hull."""
        shapes = make_shapes(self._p, self._client, craft)
        self._shown = make_drone(self._p, self._client, craft, shapes, meets_drones=False)

    def from_outside(
        self, position_m: Float[ndarray, " 3"], quat_wxyz: Float[ndarray, " 4"], eye_m: Float[ndarray, " 3"],
        middle_m: Float[ndarray, " 3"], width: int, height: int,
    ) -> UInt8[ndarray, "h w 3"]:  # fmt: skip
        """The craft at this pose, seen from `eye_m`."""
        if self._shown is not None:
            quat = quat_wxyz[[1, 2, 3, 0]].tolist()  # PyBullet's are xyzw
            self._p.resetBasePositionAndOrientation(
                self._shown, position_m.tolist(), quat, physicsClientId=self._client
            )
        up = np.array([0.0, 0.0, 1.0])
        return look_from(self._p, self._client, eye_m, middle_m, up, width, height, 60.0).rgb

    def look(
        self, position_m: Float[ndarray, "3 n"], turn: Float[ndarray, "3 3 n"], wanted: Bool[ndarray, " n"]
    ) -> UInt8[ndarray, "n h w"]:
        """Pictures of a camera in the middle of each craft along its -z axis, its x axis up; black where not
        wanted.
        """
        seen = np.zeros((position_m.shape[1], self.eye.px, self.eye.px), np.uint8)
        for i in np.flatnonzero(wanted):
            seen[i] = (self.colour(position_m[:, i], turn[:, :, i], self.eye.px) @ _LUMA).round()
        return seen

    def colour(
        self, position_m: Float[ndarray, " 3"], turn: Float[ndarray, "3 3"], px: int
    ) -> UInt8[ndarray, "h w 3"]:
        """One picture."""
        p, client = self._p, self._client
        target, up = position_m - turn[:, 2], turn[:, 0]
        view = p.computeViewMatrix(position_m.tolist(), target.tolist(), up.tolist())
        rgba = p.getCameraImage(
            px, px, view, self._lens, shadow=0, renderer=p.ER_TINY_RENDERER, flags=p.ER_NO_SEGMENTATION_MASK,
            physicsClientId=client,
        )[2]  # fmt: skip
        rgb: ndarray = np.asarray(rgba, np.uint8).reshape(px, px, 4)[..., :3]
        return rgb


def markers(eye: FloorCamera) -> list[tuple[ndarray, ndarray, float, float]]:
    """(place [m], half sides [m], direction [rad], grey) of the floor and what lies on it, the upper ones
    last.
    """
    rng = np.random.default_rng(eye.map_seed)
    found = [(np.array([0.0, 0.0, -0.001]), np.array([_FLOOR_M, _FLOOR_M]), 0.0, _GREY)]
    for i in range(eye.markers):
        place = np.array([*rng.uniform(-eye.spread_m, eye.spread_m, 2), 0.0005 * (i + 1)])
        grey = rng.uniform(0.0, 0.45) if rng.uniform() < 0.7 else rng.uniform(0.9, 1.0)
        found.append((place, rng.uniform(0.04, 0.18, 2), float(rng.uniform(0.0, np.pi)), float(grey)))
    return found


def exposed(
    seen: UInt8[ndarray, "n h w"], gain: Float[ndarray, " n"], noise: float, rng: np.random.Generator
) -> UInt8[ndarray, "n h w"]:
    """Pictures with the gain and noise of these cameras."""
    light = seen * gain[:, None, None] + noise * rng.standard_normal(seen.shape, dtype=np.float32)
    taken: ndarray = light.round().clip(0, 255).astype(np.uint8)
    return taken
