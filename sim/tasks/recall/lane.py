"""Lanes of tasks that need a memory; see `sim.tasks.recall.buttons`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy import ndarray
from numpy.typing import NDArray

from robo_rl.core.errors import ConfigError, UnknownNameError
from robo_rl.core.seeding import derive_seed
from robo_rl.core.shapes import Bool, Float, UInt8
from robo_rl.core.spec import ActionSpec, ArraySpec, EnvSpec
from robo_rl.core.text.instruction import INSTRUCTION, INSTRUCTION_SPEC, to_bytes
from sim.tasks.recall.buttons import (
    CONTROL_HZ,
    HALF_TABLE_M,
    REACH_M,
    TASKS,
    ButtonsState,
    after,
    new_episode,
)
from sim.vec.lane import LaneObs, LaneStep
from sim.vec.options import check_steps

REQUIRES: tuple[str, ...] = ()
PICTURE, EXPERT_STATE = "image.top", "privileged.state"
PICTURE_PX = 32
WORDINGS = (
    "push the button that was lit",
    "press the button that lit up",
    "touch the button that was on",
    "go to the button that was lit before",
)
START_LAMP_M, LAMP_RADIUS_M, HAND_RADIUS_M = (0.0, -0.18), 0.018, 0.022
TABLE, DARK, LIT, HELD, GREEN, HAND = (
    (60, 60, 60),
    (140, 40, 40),
    (255, 230, 90),
    (95, 95, 95),
    (40, 220, 60),
    (70, 130, 255),
)  # colours, RGB


@dataclass(frozen=True, slots=True)
class RecallLanes:
    """Builder of lanes.

    Observation: `state` (2,), x and y of the hand [m]; `image.top` (32, 32, 3); `instruction`;
    `privileged.state` (3,), place of the button that was lit [m] and 1.0 once the hand is released, for the
    expert only. Action: motion along x and y, in shares of 4 cm. Reward: 1 for success.
    """

    task: str
    reward: str = "sparse"  # the only one; an option so that all suites take the same ones
    max_episode_steps: int = 40
    render_size: int = 256

    def __post_init__(self) -> None:
        if self.task not in TASKS:
            raise UnknownNameError("recall task", self.task, TASKS)
        if self.reward != "sparse":
            raise ConfigError(f"recall tasks pay for success only, not '{self.reward}'; leave reward= out.")
        check_steps(self.max_episode_steps)

    @property
    def spec(self) -> EnvSpec:
        return EnvSpec(
            name=f"recall/{self.task}",
            obs={
                "state": ArraySpec((2,), "float32", "m: hand x, y"),
                PICTURE: ArraySpec((PICTURE_PX, PICTURE_PX, 3), "uint8"),
                INSTRUCTION: INSTRUCTION_SPEC,
                EXPERT_STATE: ArraySpec((3,), "float32", "m"),
            },
            action=ActionSpec((-1.0, -1.0), (1.0, 1.0), "4 cm per step"),
            max_episode_steps=self.max_episode_steps,
            control_hz=CONTROL_HZ,
        )

    def __call__(self) -> RecallLane:
        return RecallLane(self)


class RecallLane:
    """One table; see `sim.vec.lane.Lane`."""

    info_keys: tuple[str, ...] = ()

    def __init__(self, options: RecallLanes) -> None:
        self._options, self.spec = options, options.spec
        self._state = new_episode(np.random.Generator(np.random.Philox(0)))
        self._instruction = to_bytes(WORDINGS[0])

    def reset(self, seed: int) -> LaneObs:
        self._state = new_episode(np.random.Generator(np.random.Philox(derive_seed("recall", seed))))
        self._instruction = to_bytes(WORDINGS[derive_seed("recall wording", seed) % len(WORDINGS)])
        return self._observed()

    def step(self, action: NDArray[np.float32]) -> LaneStep:
        self._state = state = after(self._state, action.astype(np.float64))
        truncated = state.step >= self._options.max_episode_steps and not state.over
        return self._observed(), float(state.success), state.over, truncated, state.success

    def info(self) -> Sequence[float]:
        return ()

    def render(self) -> NDArray[np.uint8]:
        return picture_of(self._state, self._options.render_size)

    def close(self) -> None:
        pass

    def _observed(self) -> LaneObs:
        state = self._state
        wanted = [*state.buttons_m[state.lit], float(state.released)]
        return {
            "state": state.hand_m.astype(np.float32),
            PICTURE: picture_of(state, PICTURE_PX),
            INSTRUCTION: self._instruction,
            EXPERT_STATE: np.asarray(wanted, np.float32),
        }


def picture_of(state: ButtonsState, size_px: int) -> UInt8[ndarray, "s s 3"]:
    """The table from above, y up."""
    picture = np.full((size_px, size_px, 3), TABLE, np.uint8)
    for number, place_m in enumerate(state.buttons_m):
        lit = state.shown and number == state.lit
        picture[_disc(place_m, REACH_M, size_px)] = LIT if lit else DARK
    picture[_disc(np.asarray(START_LAMP_M), LAMP_RADIUS_M, size_px)] = GREEN if state.released else HELD
    picture[_disc(state.hand_m, HAND_RADIUS_M, size_px)] = HAND
    return picture


def _disc(place_m: Float[ndarray, " 2"], radius_m: float, size_px: int) -> Bool[ndarray, "s s"]:
    """Pixels whose centres are in the disc."""
    across_m = ((np.arange(size_px) + 0.5) / size_px * 2.0 - 1.0) * HALF_TABLE_M
    x_m, y_m = across_m[None, :] - place_m[0], -across_m[:, None] - place_m[1]
    inside: Bool[ndarray, "s s"] = x_m**2 + y_m**2 <= radius_m**2
    return inside
