"""Seek: fly to the ball of a told colour among three, seen by a camera, and stop in front of it.

Randomisation: the colours (three of four) and the places of the balls, position, heading and velocity at the
start, brightness and direction of the light. The craft starts at one end of the room, from which it sees all
balls, or at another ball than the told one, as after a success. Success: slower than `STOPPED_M_S` within
`NEAR_M` of the told ball for three seconds (`HOLD_STEPS`, or the option `hold_s`), nearer to it than to the
others. Staying at another ball, touching one, and leaving the room end an episode without success. Reward: 1
for success.

Letters in shapes: n drones, k balls. States are (17, n) as in sim/engines/quad/layout.py.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from robo_rl.core.flight.envelope import FlightEnvelope
from robo_rl.core.keyed_random import keyed_uniform
from robo_rl.core.shapes import Bool, Float, Int64
from sim.engines.quad.craft import Craft
from sim.engines.quad.layout import POS, QUAT, ROTOR, VEL, constants, start
from sim.flight.seek.words import COLOURS, colour_number

CONTROL_HZ, MAX_STEPS, MAX_STEPS_FROM_BALL = 20.0, 280, 400
BALLS, RADIUS_M = 3, 0.2
NEAR_M, STOPPED_M_S, HOLD_STEPS = 0.75, 0.25, 60
TOUCH_M = RADIUS_M + 0.1  # from the middle of a ball to that of the craft
ROOM_M = ((-2.0, 4.5), (-4.0, 4.0), (0.1, 3.0))  # x, y, z
# Of a bundle: full commands in random directions reach 0.70 rad, 8.9 rad/s and 1.9 m/s. The fence is the
# room, with the ground below it, from which a craft takes off.
ENVELOPE = FlightEnvelope(
    tilt_rad=1.0,
    rate_rad_s=15.0,
    speed_m_s=2.5,
    fence_low_m=(ROOM_M[0][0], ROOM_M[1][0], -0.2),
    fence_high_m=(ROOM_M[0][1], ROOM_M[1][1], ROOM_M[2][1]),
)
_BEARING_RAD, _BEARING_SPREAD_RAD = math.radians(27.0), math.radians(5.0)
_FAR_M, _HIGH_M, _START_HIGH_M = (2.0, 3.2), (0.6, 1.6), (0.8, 1.4)
_START_YAW_RAD, _START_SPEED_M_S = 0.15, 0.2
STOP_M = 0.5  # place of a craft before its ball, along x, inside NEAR_M
_AROUND_M = 0.1  # of a start there, to each side
_LIGHT = (0.7, 1.0)  # brightness
_NUMBERS = 2 + 3 * BALLS + BALLS + 5 + 2 + 3
_EPISODE = 0  # stream of an episode's random numbers


class SeekScene(NamedTuple):
    """What is where in an episode; the told ball comes first."""

    balls_m: Float[Tensor, "k 3 n"]  # centres
    colours: Float[Tensor, "k 3 n"]  # RGB, 0 ... 1
    light: Float[Tensor, "3 n"]  # towards the light, as long as its brightness


def begin(
    craft: Craft, seeds: Int64[Tensor, " n"], from_ball: float = 0.0
) -> tuple[Float[Tensor, "17 n"], SeekScene]:
    """First states, hovering, and scenes of episodes with these seeds.

    from_ball: share of the episodes that start at another ball than the told one.
    """
    uniform = keyed_uniform(seeds, 0, _NUMBERS, _EPISODE)
    bearing, far, high, order = uniform[2:14].reshape(4, BALLS, -1)
    slot = order.argsort(0).float() - 1.0  # left, middle or right
    angle = slot * _BEARING_RAD + (2.0 * bearing - 1.0) * _BEARING_SPREAD_RAD
    far, high = _between(_FAR_M, far), _between(_HIGH_M, high)
    balls = torch.stack([far * angle.cos(), far * angle.sin(), high], dim=1)
    state = start(len(seeds), seeds.device)
    at_end = torch.stack([0 * uniform[14], 0 * uniform[14], _between(_START_HIGH_M, uniform[14])])
    before = balls[1] - constants((STOP_M, 0.0, 0.0), at_end) + (2.0 * uniform[21:24] - 1.0) * _AROUND_M
    state[POS] = torch.where(uniform[1] < from_ball, before, at_end)
    half_yaw = (2.0 * uniform[15] - 1.0) * _START_YAW_RAD / 2
    state[QUAT] = torch.stack([half_yaw.cos(), 0 * half_yaw, 0 * half_yaw, half_yaw.sin()])
    state[VEL] = (2.0 * uniform[16:19] - 1.0) * _START_SPEED_M_S
    state[ROTOR] = craft.hover_speed
    around = 2.0 * math.pi * uniform[20]
    toward = torch.stack([0.6 * around.cos(), 0.6 * around.sin(), torch.full_like(around, 0.8)])
    scene = SeekScene(balls, _colours(seeds, uniform[0]), _between(_LIGHT, uniform[19]) * toward)
    return state, scene


def _colours(seeds: Int64[Tensor, " n"], uniform: Float[Tensor, " n"]) -> Float[Tensor, "k 3 n"]:
    """The told colour, and all others but one."""
    count = len(COLOURS)
    table = constants([part for rgb in COLOURS.values() for part in rgb], uniform).reshape(count, 3)
    left_out = 1 + (uniform * (count - 1)).long()  # this many after the told one, in the circle of colours
    numbers = [torch.zeros_like(left_out)]
    numbers += [each + (each >= left_out).long() for each in range(1, count - 1)]
    chosen = (colour_number(seeds) + torch.stack(numbers)) % count
    return table[chosen].transpose(1, 2)


def _between(ends: tuple[float, float], uniform: Tensor) -> Tensor:
    return ends[0] + (ends[1] - ends[0]) * uniform


class Verdict(NamedTuple):
    """Judgement of one step."""

    success: Bool[Tensor, " n"]
    ended: Bool[Tensor, " n"]
    held: Int64[Tensor, " n"]  # consecutive steps stopped at the told ball; negative: at another one


def score(
    state: Float[Tensor, "17 n"],
    balls_m: Float[Tensor, "k 3 n"],
    held: Int64[Tensor, " n"],
    hold_steps: int = HOLD_STEPS,
) -> Verdict:
    """Success and end of an episode in this state.

    held: of the step before. hold_steps: as many make a success.
    """
    far_m = (state[POS] - balls_m).norm(dim=1)  # (k, n)
    nearest_m, which = far_m.min(0)
    stopped = (nearest_m < NEAR_M) & (state[VEL].norm(dim=0) < STOPPED_M_S)
    counted = torch.where(which == 0, held.clamp(min=0) + 1, held.clamp(max=0) - 1)
    held = torch.where(stopped, counted, 0)
    stays = held.abs() >= hold_steps
    touched = nearest_m < TOUCH_M
    low, high = (constants(side, state) for side in zip(*ROOM_M, strict=True))
    outside = ((state[POS] < low) | (state[POS] > high)).any(0)
    failed = touched | outside
    return Verdict((held >= hold_steps) & ~failed, stays | failed, held)


def heading_axes(state: Float[Tensor, "17 n"], vector: Float[Tensor, "3 n"]) -> Float[Tensor, "3 n"]:
    """A vector of the world in level axes: x along the craft's heading, y to its left, z up."""
    cos, sin = heading(state)
    x, y, z = vector.unbind(0)
    return torch.stack([cos * x + sin * y, cos * y - sin * x, z])


def from_heading_axes(state: Float[Tensor, "17 n"], action: Float[Tensor, "4 n"]) -> Float[Tensor, "4 n"]:
    """A velocity in level axes along the heading, with its yaw rate, as one in the world."""
    cos, sin = heading(state)
    forward, left, up, yaw_rate = action.unbind(0)
    return torch.stack([cos * forward - sin * left, sin * forward + cos * left, up, yaw_rate])


def heading(state: Float[Tensor, "17 n"]) -> tuple[Tensor, Tensor]:
    """Cosine and sine of the heading, the direction of the body's x axis over ground."""
    w, x, y, z = state[QUAT].unbind(0)
    ahead, left = 1.0 - 2.0 * (y * y + z * z), 2.0 * (x * y + w * z)
    size = torch.rsqrt(ahead * ahead + left * left + 1e-9)
    return ahead * size, left * size
