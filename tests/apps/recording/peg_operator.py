"""An operator who inserts the peg by the page's keys, as a human would, but knows where the block is."""

from __future__ import annotations

import json
import time
from typing import Any

import numpy as np
from numpy import ndarray

from hardware.description import load_description
from hardware.kinematics import tool_pose
from sim.arms.arm6.peg_cell import FIELD_M, HEIGHT_M, MIDDLE_M

KEYS = (("ArrowUp", "ArrowDown"), ("ArrowLeft", "ArrowRight"), ("KeyW", "KeyS"))  # + and - of x, y, z
NEAR_M, OVER_M, DEEP_M = 0.004, HEIGHT_M + 0.02, 0.05


class PegOperator:
    """Drives the hand of `robo-rl record robot=sim_arm` by keys. The blocks' places follow from the seed."""

    def __init__(self, page: Any, seed: int = 0) -> None:
        self.page, self._pose = page, tool_pose(load_description("sim_arm"))
        self._rng, self.view = np.random.default_rng(seed), dict[str, Any]()
        self._held: list[str | None] = [None, None, None]
        page.on("websocket", lambda socket: socket.on("framereceived", self._on_frame))
        self.next_block()

    def next_block(self) -> None:
        """Note that the scene was reset, which places the block anew."""
        self.block_m = np.array(MIDDLE_M) + self._rng.uniform(-FIELD_M, FIELD_M, size=2)

    @property
    def ready(self) -> bool:
        """True when the scene is prepared and the arm can be driven."""
        robot = self.view.get("robot", {})
        return bool(robot.get("commanded")) and robot["filter"]["phase"] == "armed"

    def tool_m(self, which: str) -> ndarray:
        """Position of the peg's tip, measured or commanded; the arm lags behind its commands."""
        return np.asarray(self._pose(np.array(self.view["robot"][which]))[0])

    def insert(self, longest_s: float = 20.0) -> bool:
        """Move over the hole and down into it. Returns True if the peg is in it."""
        until_s = time.monotonic() + longest_s
        down = False
        try:
            while time.monotonic() < until_s:
                self.page.wait_for_timeout(40)
                tip_m, there_m = self.tool_m("commanded"), self.tool_m("measured")
                away_m = np.append(self.block_m - tip_m[:2], 0.0)
                down |= bool(np.abs(self.block_m - there_m[:2]).max() < NEAR_M)
                away_m[2] = (HEIGHT_M - DEEP_M if down else OVER_M) - tip_m[2]
                if down and there_m[2] < HEIGHT_M - DEEP_M + NEAR_M:
                    return True
                self._steer(away_m)
            return False
        finally:
            self._steer(np.zeros(3))

    def _steer(self, away_m: ndarray) -> None:
        """Hold the key of each axis that is further away than NEAR_M."""
        for axis, (up, down) in enumerate(KEYS):
            wanted = None if abs(away_m[axis]) < NEAR_M else up if away_m[axis] > 0 else down
            if wanted != self._held[axis]:
                if (before := self._held[axis]) is not None:
                    self.page.keyboard.up(before)
                if wanted is not None:
                    self.page.keyboard.down(wanted)
                self._held[axis] = wanted

    def _on_frame(self, payload: Any) -> None:
        if isinstance(payload, str):
            message = json.loads(payload)
            if "robot" in message:
                self.view = message
