"""Twist that makes the tool repeat the motion of the operator's hand since the clutch was engaged.

With h, H the hand's position and rotation, p, R those of the tool, and index 0 the moment of engagement:

    wanted position = p0 + scale (h - h0)            wanted rotation = H H0^T R0
    twist = gain (wanted - present), cut to the largest linear and angular speed

So the hand's place and orientation at engagement do not matter, and engaging again continues from where the
tool is. Where the arm cannot follow, the wanted pose stays within a leash of the tool's (the references move
along), so that the tool answers at once when the hand turns back. A hand that jumps, as a lost tracker's
does, moves the references and not the tool.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy import ndarray

from hardware.teleop.device import HandPose
from hardware.teleop.rotations import turn_of, vector_of
from robo_rl.core.flight.frames import rotation_of
from robo_rl.core.shapes import Float

GAIN_HZ = 15.0
LEASH_M, LEASH_RAD = 0.1, 0.5
JUMP_M, JUMP_RAD = 0.15, 0.7  # of a hand between two ticks of 1/50 s: 7.5 m/s, 35 rad/s


@dataclass(frozen=True, slots=True)
class ToolLimits:
    """Largest speeds of the tool, and metres of the tool per metre of the hand."""

    linear_m_s: float = 0.25
    angular_rad_s: float = 1.0
    scale: float = 1.0


USUAL_LIMITS = ToolLimits()


class HandMotion:
    """References of hand and tool since the clutch was engaged."""

    def __init__(self, limits: ToolLimits, gain_hz: float = GAIN_HZ) -> None:
        self._limits, self._gain_hz = limits, gain_hz
        self.jumps = 0  # times that the hand jumped
        self._engaged = False

    def release(self) -> None:
        """Let go: the next pose engages again, wherever the hand is then."""
        self._engaged = False

    def twist(
        self, hand: HandPose, tool_m: Float[ndarray, " 3"], tool_turn: Float[ndarray, "3 3"]
    ) -> Float[ndarray, " 6"]:
        """Twist of the tool [m/s, rad/s] in the base frame towards the wanted pose."""
        place_m, turn = hand.position_m, rotation_of(hand.quat_wxyz)
        if self._engaged and self._jumped(place_m, turn):
            self.jumps += 1
            self._engaged = False
        if not self._engaged:
            self._engaged = True
            self._hand_m, self._hand_turn = place_m, turn
            self._tool_m, self._tool_turn = tool_m, tool_turn
        self._last_m, self._last_turn = place_m, turn
        scale = self._limits.scale
        way_m = self._tool_m + scale * (place_m - self._hand_m) - tool_m
        turned = turn @ self._hand_turn.T
        way_rad = vector_of(turned @ self._tool_turn @ tool_turn.T)
        short_m, short_rad = _cut(way_m, LEASH_M), _cut(way_rad, LEASH_RAD)
        self._tool_m = self._tool_m + short_m - way_m
        if short_rad is not way_rad:
            self._tool_turn = turned.T @ turn_of(short_rad) @ tool_turn
        limits = self._limits
        return np.concatenate(
            [
                _cut(self._gain_hz * short_m, limits.linear_m_s),
                _cut(self._gain_hz * short_rad, limits.angular_rad_s),
            ]
        )

    def _jumped(self, place_m: Float[ndarray, " 3"], turn: Float[ndarray, "3 3"]) -> bool:
        moved_m = float(np.linalg.norm(place_m - self._last_m))
        return moved_m > JUMP_M or float(np.linalg.norm(vector_of(turn @ self._last_turn.T))) > JUMP_RAD


def _cut(vector: Float[ndarray, " 3"], most: float) -> Float[ndarray, " 3"]:
    """The vector, shortened to the length `most`; the same object where it is no longer."""
    length = float(np.linalg.norm(vector))
    return vector if length <= most else vector * (most / length)
