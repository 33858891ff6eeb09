"""Appearance of a world in one episode: camera poses, colours and light.

It changes pictures only, never physics, and is drawn from the episode's seed, alike in every engine. Point
clouds are computed with the cameras where the model has them: a shifted camera acts as a calibration error.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import mujoco
import numpy as np
import torch
from numpy import ndarray
from torch import Tensor

from robo_rl.core.shapes import Float


class VisualRandomisation(NamedTuple):
    """One appearance. c = cameras, s = shapes, x = materials."""

    camera_m: Float[Tensor, "c 3"]  # added to a camera's position
    camera_rad: Float[Tensor, "c 3"]  # rotation vector, before the camera's own rotation
    shape_colour: Float[Tensor, "s 3"]  # factors of red, green and blue
    material_colour: Float[Tensor, "x 3"]
    light: float  # factor of all lights

    def show(self, model: Any, original: Any) -> None:
        """Apply it to `model`, a copy of `original`."""
        model.cam_pos[:] = original.cam_pos + self.camera_m.numpy()
        for i, turn in enumerate(self.camera_rad.double().numpy()):
            model.cam_quat[i] = _turned(turn, original.cam_quat[i])
        model.geom_rgba[:, :3] = np.clip(original.geom_rgba[:, :3] * self.shape_colour.numpy(), 0.0, 1.0)
        model.mat_rgba[:, :3] = np.clip(original.mat_rgba[:, :3] * self.material_colour.numpy(), 0.0, 1.0)
        model.light_diffuse[:] = original.light_diffuse * self.light
        model.vis.headlight.diffuse[:] = original.vis.headlight.diffuse * self.light
        model.vis.headlight.ambient[:] = original.vis.headlight.ambient * self.light


def plain(model: Any) -> VisualRandomisation:
    """Appearance of the model itself."""
    nothing, as_is = torch.zeros(model.ncam, 3), torch.ones(model.ngeom, 3)
    return VisualRandomisation(nothing, nothing, as_is, torch.ones(model.nmat, 3), 1.0)


def draw_visuals(
    uniform: Float[Tensor, " u"], model: Any, shift_m: float, turn_rad: float,
    colour: tuple[float, float], light: tuple[float, float],
) -> VisualRandomisation:  # fmt: skip
    """An appearance from uniform numbers.

    uniform: `numbers(model)` numbers in (0, 1). Shifts and turns lie within plus and minus the given value,
    on each axis.
    """
    cameras, shapes, materials = model.ncam, model.ngeom, model.nmat
    place, turn, paint, stuff, shine = uniform.split([3 * cameras, 3 * cameras, 3 * shapes, 3 * materials, 1])
    return VisualRandomisation(
        (2.0 * place - 1.0).view(-1, 3) * shift_m,
        (2.0 * turn - 1.0).view(-1, 3) * turn_rad,
        _factor(paint, *colour).view(-1, 3),
        _factor(stuff, *colour).view(-1, 3),
        float(_factor(shine, *light)),
    )


def numbers(model: Any) -> int:
    """Number of uniform numbers that an appearance takes."""
    return 6 * int(model.ncam) + 3 * int(model.ngeom) + 3 * int(model.nmat) + 1


def _factor(uniform: Tensor, low: float, high: float) -> Tensor:
    return low * (high / low) ** uniform


def _turned(turn_rad: Float[ndarray, " 3"], quat: Float[ndarray, " 4"]) -> Float[ndarray, " 4"]:
    angle = float(np.linalg.norm(turn_rad))
    turn, turned = np.zeros(4), np.zeros(4)
    mujoco.mju_axisAngle2Quat(turn, turn_rad / max(angle, 1e-12), angle)
    mujoco.mju_mulQuat(turned, turn, quat)
    return turned
