"""Push the button that was lit: one of two lamps shows which, then goes out, and later the hand is released.

A hand moves on a table of 0.4 m by 0.4 m with two buttons. In the first 0.5 s one button is lit. The hand is
held at its start until the start lamp turns green, 0.5 s to 1.2 s after the light went out. Success: the hand
touches the button that was lit. Touching the other one ends the episode without success.

From the step in which the light goes out to the release, observations say nothing about the button. So no
policy without a memory succeeds in more than half of the episodes, however it is trained.

Random: the button, the place of both by up to 2 cm, that of the hand by up to 10 cm to either side, and the
time of the release. Lengths in metres, x to the right, y away from the hand; a step is 0.1 s.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy import ndarray

from robo_rl.core.shapes import Float

TASKS = ("buttons",)
CONTROL_HZ = 10.0
HALF_TABLE_M = 0.2
REACH_M = 0.05  # the hand's centre touches a button at this distance
STEP_M = 0.04  # largest motion of a step along each axis
SHOWN_STEPS = 5
RELEASE_STEPS = (10, 17)  # the release is in [first, last)
HAND_M, BUTTONS_M = (0.0, -0.12), ((-0.12, 0.1), (0.12, 0.1))
HAND_SPREAD_M, BUTTON_SPREAD_M = (0.1, 0.02), 0.02


@dataclass(frozen=True, slots=True)
class ButtonsState:
    """State of an episode."""

    hand_m: Float[ndarray, " 2"]
    buttons_m: Float[ndarray, "2 2"]
    lit: int  # the button that was or is lit
    release: int  # step from which the hand can move
    step: int = 0
    touched: int | None = None

    @property
    def shown(self) -> bool:
        """True while the button is lit."""
        return self.step < SHOWN_STEPS

    @property
    def released(self) -> bool:
        """True when the hand can move."""
        return self.step >= self.release

    @property
    def success(self) -> bool:
        return self.touched == self.lit

    @property
    def over(self) -> bool:
        """True when a button was touched."""
        return self.touched is not None


def new_episode(rng: np.random.Generator) -> ButtonsState:
    """First state of a random episode."""
    lit, release = int(rng.integers(2)), int(rng.integers(*RELEASE_STEPS))
    hand_m = np.asarray(HAND_M) + rng.uniform(-1.0, 1.0, 2) * HAND_SPREAD_M
    buttons_m = np.asarray(BUTTONS_M) + rng.uniform(-BUTTON_SPREAD_M, BUTTON_SPREAD_M, (2, 2))
    return ButtonsState(hand_m, buttons_m, lit, release)


def after(state: ButtonsState, action: Float[ndarray, " 2"]) -> ButtonsState:
    """State one step later. action: motion along x and y, in shares of `STEP_M`; without effect before the
    release.
    """
    hand_m = state.hand_m
    if state.released:
        move_m = STEP_M * np.clip(action, -1.0, 1.0)
        hand_m = np.clip(hand_m + move_m, -HALF_TABLE_M, HALF_TABLE_M)
    distance_m = np.linalg.norm(state.buttons_m - hand_m, axis=1)
    nearest = int(distance_m.argmin())
    touched = nearest if distance_m[nearest] <= REACH_M else None
    return replace(state, hand_m=hand_m, step=state.step + 1, touched=touched)
