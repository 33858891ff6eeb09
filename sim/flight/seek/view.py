"""Pictures of a camera on a quadcopter: coloured balls above a chequered floor, by ray casting.

A ray p + t d meets a ball with centre c and radius r where t = -b - sqrt(b^2 - (|p - c|^2 - r^2)) with
b = d . (p - c) is real and positive. Brightness is that of diffuse reflection, 0.35 + 0.65 max(0, n . l).
"""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from torch import Tensor

from robo_rl.core.shapes import Float, Int64, UInt8
from sim.engines.quad.layout import POS, QUAT, constants, rotation_matrix

FIELD_OF_VIEW_RAD = math.pi / 2  # across and up
NOWHERE = (0.0, 2.0)  # place of what is not in the picture, below it
_TILE_M = 0.5
_TILES = (0.35, 0.5)  # brightness of dark and light ones
_PAINTS = (1.0, 1.0, 1.0, 0.75, 0.85, 0.95)  # RGB of floor and sky
_BLUR_M = 3.0  # the pattern fades into its mean at this distance: tiles smaller than a pixel would flicker
_AMBIENT, _DIFFUSE = 0.35, 0.65
_MOST_RAYS = 1 << 20  # at once, for the memory


def front_camera(
    state: Float[Tensor, "17 n"],
    balls_m: Float[Tensor, "k 3 n"],
    colours: Float[Tensor, "k 3 n"],
    light: Float[Tensor, "3 n"],
    radius_m: float,
    size_px: int,
) -> UInt8[Tensor, "n s s 3"]:
    """RGB pictures of a camera in the craft's middle that looks along its x axis.

    balls_m: centres in the world. light: unit vector towards the light times its brightness.
    """
    lanes = max(1, _MOST_RAYS // size_px**2)
    some = [slice(first, first + lanes) for first in range(0, state.shape[1], lanes)]
    return torch.cat(
        [
            _pictures(state[:, i], balls_m[..., i], colours[..., i], light[:, i], radius_m, size_px)
            for i in some
        ]
    )


def _pictures(
    state: Tensor, balls_m: Tensor, colours: Tensor, light: Tensor, radius_m: float, size_px: int
) -> UInt8[Tensor, "n s s 3"]:
    """A surface and its brightness for every pixel, then the colours of the surfaces."""
    eye, light = state[POS].T, light.T  # (n, 3)
    turn = rotation_matrix(state[QUAT]).T.reshape(-1, 3, 3)  # body -> world
    rays = _rays(size_px, state.device) @ turn.transpose(1, 2)  # (n, p, 3)
    bright = light.norm(dim=1, keepdim=True)  # (n, 1)
    toward = (light / bright)[:, :, None]
    along_light = (rays @ toward)[..., 0]  # (n, p)
    surface, shade = _room(eye, rays, len(balls_m))
    nearest = torch.full_like(shade, math.inf)
    for number, centre in enumerate(balls_m):
        from_centre = (eye - centre.T)[:, :, None]  # (n, 3, 1)
        b = (rays @ from_centre)[..., 0]
        inside = b.square() - (from_centre.square().sum(1) - radius_m**2)
        far = -b - inside.clamp(min=0.0).sqrt()
        seen = (inside > 0.0) & (far > 0.0) & (far < nearest)
        facing = ((from_centre * toward).sum(1) + far * along_light) / radius_m  # n . l
        shade = torch.where(seen, _AMBIENT + _DIFFUSE * facing.clamp(min=0.0), shade)
        surface = torch.where(seen, number, surface)
        nearest = torch.where(seen, far, nearest)
    room = constants(_PAINTS, eye).reshape(1, 2, 3).expand(len(eye), 2, 3)
    paints = torch.cat([colours.permute(2, 0, 1), room], dim=1)  # (n, k + 2, 3)
    painted = paints.gather(1, surface[..., None].expand(*surface.shape, 3))
    picture = (bright * shade)[..., None] * painted
    pixels: Tensor = (255.0 * picture.clamp(0.0, 1.0)).round().to(torch.uint8)
    return pixels.reshape(-1, size_px, size_px, 3)


def in_picture(
    state: Float[Tensor, "17 n"], point_m: Float[Tensor, "3 n"]
) -> tuple[Float[Tensor, " n"], Float[Tensor, " n"]]:
    """Place of a point of the world in the picture, x to the right and y down, 0 in its middle and 1 at its
    edges; `NOWHERE` for a point that is not in it.
    """
    turn = rotation_matrix(state[QUAT]).reshape(3, 3, -1)
    ahead, left, up = ((point_m - state[POS]).unsqueeze(1) * turn).sum(0).unbind(0)
    depth = ahead.clamp(min=1e-3) * math.tan(FIELD_OF_VIEW_RAD / 2)
    right, down = -left / depth, -up / depth
    seen = (ahead > 0.0) & (right.abs() <= 1.0) & (down.abs() <= 1.0)
    return torch.where(seen, right, NOWHERE[0]), torch.where(seen, down, NOWHERE[1])


def _room(
    eye: Float[Tensor, "n 3"], rays: Float[Tensor, "n p 3"], number: int
) -> tuple[Int64[Tensor, "n p"], Float[Tensor, "n p"]]:
    """Surface of every pixel without the balls, `number` for the floor and the next one for the sky, and its
    brightness.
    """
    x, y, up = rays.unbind(-1)
    down = up < -1e-3
    far = torch.where(down, -eye[:, 2:] / up, 0.0)
    tiles = ((eye[:, i : i + 1] + far * part) / _TILE_M for i, part in enumerate((x, y)))
    odd = sum(tile.floor() for tile in tiles) % 2.0
    grey = sum(_TILES) / 2 + (odd - 0.5) * (_TILES[1] - _TILES[0]) * torch.exp(-far / _BLUR_M)
    return torch.where(down, number, number + 1), torch.where(down, grey, 1.0 - 0.25 * up.clamp(min=0.0))


@lru_cache(maxsize=8)
def _rays(size_px: int, device: torch.device) -> Float[Tensor, "p 3"]:
    """Unit vectors in body axes through the pixels' middles, row by row from the upper left one."""
    edge = math.tan(FIELD_OF_VIEW_RAD / 2)
    across = ((torch.arange(size_px, device=device) + 0.5) / size_px * 2.0 - 1.0) * edge
    down, right = torch.meshgrid(across, across, indexing="ij")
    rays = torch.stack([torch.ones_like(down), -right, -down], dim=-1).reshape(-1, 3)
    unit: Tensor = rays / rays.norm(dim=1, keepdim=True)
    return unit
