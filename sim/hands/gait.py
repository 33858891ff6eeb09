"""Finger gait that turns a box on the palm about the vertical: two pairs of facing fingers alternate.

One pair holds the box between two faces and turns it as far as its fingers reach; the other waits beside the
faces that it can turn furthest, then takes over, and the first returns. The action of a pair depends only on
the positions of its tips and their contacts, so the gait recovers from noise.

f = fingers; p = pairs, f = 2 p: finger i faces finger p + i. Angles in rad, about the vertical, of a pair
relative to its straight position.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from robo_rl.core.shapes import Bool, Float


@dataclass(frozen=True, slots=True)
class Gait:
    """Parameters of the gait; a step is one control step."""

    reach_rad: float = 0.6  # range of a pair, either way
    stroke_rad: float = 0.4  # minimum range of a stroke
    near_rad: float = 0.2  # tolerance of the start and the end of a stroke
    turn_rad: float = 0.15  # turn of the box per step
    swing_rad: float = 0.35  # turn of a pair in the air per step
    done_rad: float = 0.03
    open_m: float = 0.058  # distance of a tip in the air from the middle of the box
    press_m: float = 0.005  # depth of a holding tip's goal below the face
    close_m: float = 0.010  # motion of a tip towards the face per step
    centre_m: float = 0.003  # motion of a held box back to the middle of the palm per step
    height_m: float = 0.162  # height of tips in the air
    rest_m: float = 0.1575  # height of the middle of a box on the palm; a held box is pressed down to it


class GaitState(NamedTuple):
    """State that the gait observes. The palm's middle is the world's."""

    tips_m: Float[Tensor, "n f 3"]
    touching: Bool[Tensor, "n f"]
    box_m: Float[Tensor, "n 3"]
    box_rad: Float[Tensor, " n"]
    to_go_rad: Float[Tensor, " n"]


def tip_goals(seen: GaitState, gait: Gait) -> Float[Tensor, "n f 3"]:
    """Next positions of the tips [m]."""
    n, f, _ = seen.tips_m.shape
    p = f // 2
    flat_m = seen.tips_m[..., :2]
    across_m = flat_m[:, :p] - flat_m[:, p:]
    straight_rad = torch.arange(p).to(seen.box_rad) * (math.pi / p)
    turned = wrapped(torch.atan2(across_m[..., 1], across_m[..., 0]) - straight_rad)  # (n, p)
    away_m = (flat_m - seen.box_m[:, None, :2]).norm(dim=-1).view(n, 2, p).amin(1)
    holding = seen.touching.view(n, 2, p).all(1)
    sense = torch.where(seen.to_go_rad < 0.0, -1.0, 1.0)[:, None].to(turned)
    start = start_angle(seen.box_rad, sense[:, 0], gait)[:, None]
    room, near = gait.reach_rad - sense * turned, (turned - start).abs() < gait.near_rad
    done = seen.to_go_rad.abs()[:, None] < gait.done_rad

    leads = leader(holding, room, (turned - start).abs())
    spent = ((room < gait.near_rad) & leads & holding).any(1, keepdim=True) & ~done  # the other takes over
    turns = leads & holding
    closes = ~turns & (leads | spent) & near
    opens = ~turns & ~closes & (away_m < gait.open_m - 0.007)

    # Beyond the remaining angle: servos under load do not reach their target.
    step = (1.5 * seen.to_go_rad[:, None]).clamp(-gait.turn_rad, gait.turn_rad)
    step = torch.where(done | (room < gait.done_rad), 0.0, step)
    swing = (start - turned).clamp(-gait.swing_rad, gait.swing_rad)
    angle = turned + torch.where(turns, step, torch.where(opens, 0.0, swing))
    radius_m = torch.where(
        turns, 0.5 * across_m.norm(dim=-1) - gait.press_m,
        torch.where(closes, away_m - gait.close_m, gait.open_m + torch.where(opens, 0.004, 0.0)),
    )  # fmt: skip
    back_m = seen.box_m[:, None, :2].clamp(-gait.centre_m, gait.centre_m)
    middle_m = seen.box_m[:, None, :2] - torch.where(turns[..., None], back_m, 0.0)
    way = angle + straight_rad
    out_m = radius_m[..., None] * torch.stack([way.cos(), way.sin()], -1)
    goals_m = torch.cat([middle_m + out_m, middle_m - out_m], 1)
    down_m = 2.0 * (seen.box_m[:, 2] - gait.rest_m).clamp(0.0, 2.0 * gait.centre_m)
    held_m = gait.height_m - down_m[:, None].expand(n, f)
    height_m = torch.where(turns.repeat(1, 2), held_m, gait.height_m)
    return torch.cat([goals_m, height_m[..., None]], -1)


def leader(
    holding: Bool[Tensor, "n p"], room: Float[Tensor, "n p"], off: Float[Tensor, "n p"]
) -> Bool[Tensor, "n p"]:
    """Pair that turns: one that holds, with the most range left; else the pair nearest to its start."""
    first = torch.zeros_like(off)
    first[:, 0] = 0.1  # prefers the current pair of two equal ones, or the choice would alternate
    score = torch.where(holding, 10.0 + room, first - off)
    return torch.nn.functional.one_hot(score.argmax(1), holding.shape[1]).bool()


def start_angle(box_rad: Float[Tensor, " n"], sense: Float[Tensor, " n"], gait: Gait) -> Float[Tensor, " n"]:
    """Start of a stroke in this direction (1 or -1): as square to two faces as the range of a
    stroke allows.
    """
    square = wrapped(box_rad, math.pi / 2)[:, None] + (math.pi / 2) * torch.arange(-1, 2).to(box_rad)
    most = torch.where(sense > 0.0, gait.reach_rad - gait.stroke_rad, gait.reach_rad)[:, None]
    least = torch.where(sense > 0.0, -gait.reach_rad, gait.stroke_rad - gait.reach_rad)[:, None]
    possible = square.clamp(least, most)
    best = (possible - square).abs().argmin(1, keepdim=True)
    return possible.gather(1, best)[:, 0]


def wrapped(angle_rad: Tensor, period_rad: float = 2.0 * math.pi) -> Tensor:
    """Angle within half a period of zero."""
    return torch.remainder(angle_rad + 0.5 * period_rad, period_rad) - 0.5 * period_rad
