"""Cameras of a scene as observations: pictures, depths and point clouds, rendered again where something
changed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from robo_rl.core.errors import ConfigError, UnknownNameError
from robo_rl.core.protocols import Obs
from robo_rl.core.shapes import Float
from robo_rl.core.spec import SEGMENTS, ArraySpec
from sim.bodies.pose import Pose
from sim.bodies.rotation import from_rotvec, multiply, rotate
from sim.engines.protocol import Engine, Physics
from sim.engines.visual_randomisation import VisualRandomisation
from sim.scenes.point_cloud import cloud, in_pictures, rays
from sim.scenes.segments import classes
from sim.tasks.table import TaskOptions

SENSES = ("rgb", "depth", "points", "segmentation")
_KEYS = {"rgb": "image", "depth": "depth", "points": "points", "segmentation": "segmentation"}
_SEGMENTS = ", ".join(f"{i} {name}" for i, name in enumerate(SEGMENTS))
FAR_M = 10.0  # maximum depth, also of the sky

Box = tuple[tuple[float, float, float], tuple[float, float, float]]


class Cameras:
    """Camera observations. `names` of cameras of the scene and their `senses`, both joined by "+".

    image.<camera> (h, w, 3) uint8, depth.<camera> (h, w) float32 [m] along the camera's axis, points.<camera>
    (p, 3) float32 [m] in the world, within `box_m`, segmentation.<camera> (h, w, 1) uint8, indices of
    `SEGMENTS`. Raises UnknownNameError for an unknown camera or sense.
    """

    def __init__(
        self, engine: Engine, names: str, senses: str, side_px: int, points: int, box_m: Box
    ) -> None:
        self._engine, self._side_px, self._count = engine, side_px, points
        self._names = tuple(name for name in names.split("+") if name)
        self._senses = tuple(senses.split("+"))
        for sense in self._senses:
            if sense not in SENSES:
                raise UnknownNameError("sense of a camera", sense, SENSES)
        for key, given in (("cameras", self._names), ("senses", self._senses)):
            if len(set(given)) < len(given):
                raise ConfigError(f"{key}={'+'.join(given)} names one twice; expected each once.")
        if not self._names and self._senses != ("rgb",):
            raise ConfigError(f"senses={senses} needs cameras to sense with, such as cameras=view.")
        self._mounts = {name: self._mount(name) for name in self._names}
        self._low_m, self._high_m = (torch.tensor(corner, dtype=torch.float32) for corner in box_m)
        self._visuals: list[VisualRandomisation | None] = [None] * engine.num_envs
        self._classes = torch.from_numpy(classes(engine.scene.model))

    @property
    def specs(self) -> dict[str, ArraySpec]:
        side = self._side_px
        specs = {
            "rgb": ArraySpec((side, side, 3), "uint8"),
            "depth": ArraySpec((side, side), unit="m"),
            "points": ArraySpec((self._count, 3), unit="m"),
            "segmentation": ArraySpec((side, side, 1), "uint8", _SEGMENTS),
        }
        return {f"{_KEYS[sense]}.{name}": specs[sense] for name in self._names for sense in self._senses}

    def begin(self, worlds: Iterable[int], visuals: Sequence[VisualRandomisation]) -> None:
        """Set the appearance of these worlds."""
        for world, each in zip(worlds, visuals, strict=True):
            self._visuals[world] = each

    def take(self, physics: Physics, worlds: Iterable[int], before: Obs | None = None) -> Obs:
        """Camera observations: new ones of these worlds, `before` of the others. Fresh tensors."""
        if not self._names:
            return {}
        n, rows = self._engine.num_envs, list(worlds)
        found = {
            key: torch.zeros(n, *spec.shape, dtype=spec.torch_dtype)
            if before is None
            else before[key].clone()
            for key, spec in self.specs.items()
        }
        for name in self._names:
            for world in rows:
                self._sense(name, world, physics, found)
        return found

    def _sense(self, name: str, world: int, physics: Physics, found: Obs) -> None:
        side, visuals = self._side_px, self._visuals[world]
        if "segmentation" in self._senses:
            bodies = self._engine.render(world, name, side, side, "segment", visuals)
            found[f"segmentation.{name}"][world] = self._classes[bodies.long()][..., None]
        if not {"depth", "points"} & set(self._senses):
            if "rgb" in self._senses:
                found[f"image.{name}"][world] = self._engine.render(world, name, side, side, "rgb", visuals)
            return
        if "rgb" in self._senses:  # one rendering for both: rendering is the cost of a picture
            both = self._engine.render(world, name, side, side, "rgbd", visuals)
            found[f"image.{name}"][world], depth_m = (
                both[..., :3].to(torch.uint8),
                both[..., 3].clamp_max(FAR_M),
            )
        else:
            depth_m = self._engine.render(world, name, side, side, "depth", visuals).clamp_max(FAR_M)
        if "depth" in self._senses:
            found[f"depth.{name}"][world] = depth_m
        if "points" in self._senses:
            body, mount, looking = self._mounts[name]
            m, quat = (part[world, body].float().cpu() for part in (physics.body_m, physics.body_quat))
            place = Pose(m + rotate(quat, mount.m), multiply(quat, mount.quat))
            found[f"points.{name}"][world] = cloud(
                depth_m, looking, place, self._low_m, self._high_m, self._count
            )

    @property
    def pictures(self) -> tuple[str, ...]:
        """Keys of the colour pictures."""
        return tuple(f"image.{name}" for name in self._names if "rgb" in self._senses)

    def places(self, physics: Physics, place_m: Float[Tensor, "n 3"]) -> dict[str, Float[Tensor, "n 2"]]:
        """Place of a point of each world [m; world frame] in each colour picture, see `in_pictures`; with the
        shift and turn of the world's appearance, which the picture has too.
        """
        scene, found = self._engine.scene, {}
        for key in self.pictures:
            name = key.removeprefix("image.")
            body, mount, _ = self._mounts[name]
            row, still = scene.camera(name), torch.zeros(3)
            shift_m, turn_rad = (
                torch.stack([still if each is None else getattr(each, part)[row] for each in self._visuals])
                for part in ("camera_m", "camera_rad")
            )
            on_body = Pose(mount.m + shift_m, multiply(from_rotvec(turn_rad), mount.quat))
            m, quat = (part[:, body].float().cpu() for part in (physics.body_m, physics.body_quat))
            camera = Pose(m + rotate(quat, on_body.m), multiply(quat, on_body.quat))
            fovy_rad = math.radians(float(scene.model.cam_fovy[row]))
            found[key] = in_pictures(place_m.float().cpu(), camera, fovy_rad)
        return found

    def _mount(self, name: str) -> tuple[int, Pose, Float[Tensor, "h w 3"]]:
        """Body of a camera, its pose on it, and the directions of its pixels."""
        model = self._engine.scene.model
        row = self._engine.scene.camera(name)
        place, turn = (
            torch.from_numpy(array[row].copy()).float() for array in (model.cam_pos, model.cam_quat)
        )
        looking = rays(self._side_px, self._side_px, math.radians(float(model.cam_fovy[row])))
        return int(model.cam_bodyid[row]), Pose(place, turn), looking


def make_cameras(engine: Engine, options: TaskOptions, box_m: Box) -> Cameras:
    """Cameras of these options; point clouds are cropped to the box."""
    return Cameras(engine, options.cameras, options.senses, options.image_size, options.points, box_m)
