"""A simulated craft in the room of `drone/seek`, as a robot with a front camera."""

from __future__ import annotations

import torch
from numpy import ndarray

from robo_rl.core.shapes import UInt8
from sim.engines.quad.layout import VEL
from sim.flight.robot import QuadBody
from sim.flight.seek.task import HOLD_STEPS, RADIUS_M, Verdict, begin, score
from sim.flight.seek.view import front_camera
from sim.flight.seek.words import COLOURS, VARIANTS, colour_number, wording_number

PICTURE_PX = 64  # side of the pictures of `drone/seek`


class SeekRoom:
    """Room, balls and light around `body`; episodes have the same seeds as those of the environment.

    at_rest: begin without velocity, so that a craft waits for its policy where it is. hold_steps: at the told
    ball, that make a success. from_ball: share of the episodes that start at another ball. instruction: what
    the craft is told in this episode. balls: the colours of the balls.
    """

    def __init__(
        self,
        body: QuadBody,
        seed: int,
        at_rest: bool = False,
        hold_steps: int = HOLD_STEPS,
        from_ball: float = 0.0,
    ) -> None:
        self.body, self._next_seed, self._at_rest = body, seed, at_rest
        self._hold_steps, self._from_ball = hold_steps, from_ball
        self.reset()

    def reset(self) -> None:
        """Begin the episode of the next seed."""
        self.begin(self._next_seed)

    def begin(self, seed: int) -> None:
        """Begin the episode of this seed."""
        self._next_seed = seed + 1
        seeds = torch.tensor([seed])
        state, self._scene = begin(self.body.craft, seeds, self._from_ball)
        if self._at_rest:
            state[VEL] = 0.0
        self.body.put(state)
        self._held = torch.zeros_like(seeds)
        wordings = VARIANTS.texts("training")[int(colour_number(seeds))]
        seen = self._scene.colours[..., 0].tolist()
        known = [torch.tensor(rgb).tolist() for rgb in COLOURS.values()]
        self.balls = tuple(name for name, rgb in zip(COLOURS, known, strict=True) if rgb in seen)
        self.instruction = wordings[int(wording_number(seeds, len(wordings)))]

    def picture(self, size_px: int) -> UInt8[ndarray, "s s 3"]:
        """What the front camera sees."""
        seen = front_camera(self.body.state, *self._scene, RADIUS_M, size_px)
        pixels: ndarray = seen[0].numpy()
        return pixels

    def verdict(self) -> Verdict:
        """Judgement of the present state, as in the environment; call it once per control step."""
        found = score(self.body.state, self._scene.balls_m, self._held, self._hold_steps)
        self._held = found.held
        return found
