"""A finger gait that turns a box on the palm about the vertical: two pairs of facing fingers take turns.

One pair holds the box between two faces and turns it as far as its fingers reach; the other waits beside the
faces that it can turn furthest, then takes over, and the first returns. What a pair does is a function of
where its tips are and whether they touch, so the gait goes on from wherever noise has led it.

f = fingers; p = pairs, f = 2 p: finger i faces finger p + i. Angles in rad, about the vertical, of a pair
from where it stands straight.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Gait:
    """Measures of the gait; one step of control where it says step."""

    reach_rad: float = 0.6  # how far a pair turns, either way
    stroke_rad: float = 0.4  # a stroke begins with so much before it at least
    near_rad: float = 0.2  # to where a stroke begins, or ends: near enough to grip, or to be relieved
    turn_rad: float = 0.15  # a step's turn of the box
    swing_rad: float = 0.35  # a step's turn of a pair in the air
    done_rad: float = 0.03
    open_m: float = 0.058  # from the middle of the box to a tip in the air
    press_m: float = 0.005  # how deep the goal of a holding tip lies under the face
    close_m: float = 0.010  # a step's way of a tip towards the face
    centre_m: float = 0.003  # a step's way of a held box back to the middle of the palm
    height_m: float = 0.162  # of the tips in the air
    rest_m: float = (
        0.1575  # of the middle of a box that lies on the palm; a held one is pressed down to there
    )


class Seen(NamedTuple):
    """What the gait looks at. The palm's middle is the world's."""

    tips_m: Float[Tensor, "n f 3"]
    touching: Bool[Tensor, "n f"]
    box_m: Float[Tensor, "n 3"]
    box_rad: Float[Tensor, " n"]
    to_go_rad: Float[Tensor, " n"]


def tip_goals(seen: Seen, gait: Gait) -> Float[Tensor, "n f 3"]:
    """Where the tips are to go next [m]."""
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

    # More than is to go: servos under load come short of what they are asked for.
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
    """Which pair turns: one that holds, with most room of several; else the one nearest to where it
    begins.
    """
    first = torch.zeros_like(off)
    first[:, 0] = 0.1  # of two alike, or all would change their minds at every step
    score = torch.where(holding, 10.0 + room, first - off)
    return torch.nn.functional.one_hot(score.argmax(1), holding.shape[1]).bool()


def start_angle(box_rad: Float[Tensor, " n"], sense: Float[Tensor, " n"], gait: Gait) -> Float[Tensor, " n"]:
    """Where a stroke in this sense (1 or -1) begins: as square to two faces as the room for a stroke
    allows.
    """
    square = wrapped(box_rad, math.pi / 2)[:, None] + (math.pi / 2) * torch.arange(-1, 2).to(box_rad)
    most = torch.where(sense > 0.0, gait.reach_rad - gait.stroke_rad, gait.reach_rad)[:, None]
    least = torch.where(sense > 0.0, -gait.reach_rad, gait.stroke_rad - gait.reach_rad)[:, None]
    possible = square.clamp(least, most)
    best = (possible - square).abs().argmin(1, keepdim=True)
    return possible.gather(1, best)[:, 0]


def wrapped(angle_rad: Tensor, period_rad: float = 2.0 * math.pi) -> Tensor:
    """The same angle within half a period of zero."""
    return torch.remainder(angle_rad + 0.5 * period_rad, period_rad) - 0.5 * period_rad
