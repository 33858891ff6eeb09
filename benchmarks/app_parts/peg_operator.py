"""An operator who inserts the peg by the page's keys, as a human would, but knows where the block is."""

from __future__ import annotations

import json
import time
from typing import Any

import numpy as np
from numpy import ndarray

from hardware.description import load_description
from hardware.kinematics import tool_pose
from sim.arms.arm6.peg_cell import HEIGHT_M, HOLE_M, PEG_M

KEYS = (("ArrowUp", "ArrowDown"), ("ArrowLeft", "ArrowRight"), ("KeyW", "KeyS"))  # + and - of x, y, z
NEAR_M, OVER_M, DEEP_M = 0.004, HEIGHT_M + 0.02, 0.05
PLAY_M = (
    HOLE_M - PEG_M + 0.002
)  # a peg in the hole is not further from its middle; contacts give way a little
WALLS = "async () => (await (await fetch('api/scene')).json()).shapes.filter(each => each.kind === 'box')"


class PegOperator:
    """Drives the hand of `robo-rl record robot=sim_arm` by keys, and sees the block as the 3-D view does."""

    def __init__(self, page: Any) -> None:
        self.page, self._pose = page, tool_pose(load_description("sim_arm"))
        self.view: dict[str, Any] = {}  # newest message of the app
        self.block_m = np.zeros(2)
        self._scene = 0  # number of the scene whose block is known
        self._held: list[str | None] = [None, None, None]
        page.on("websocket", lambda socket: socket.on("framereceived", self._on_frame))

    @property
    def ready(self) -> bool:
        """True when another scene than the last one is prepared and the arm can be driven."""
        robot = self.view.get("robot", {})
        armed = bool(robot.get("commanded")) and robot["filter"]["phase"] == "armed"
        return armed and self.view["scene"] > self._scene

    def look(self) -> None:
        """Find the block of the present scene."""
        self._scene = self.view["scene"]
        walls = [each["pos_m"][:2] for each in self.page.evaluate(WALLS) if each["link"] == -1]
        self.block_m = np.mean(walls[-4:], axis=0)  # four walls around the hole

    def tool_m(self, which: str) -> ndarray:
        """Position of the peg's tip, measured or commanded; the arm lags behind its commands."""
        return np.asarray(self._pose(np.array(self.view["robot"][which]))[0])

    @property
    def inserted(self) -> bool:
        """True while the peg is measured deep in the hole."""
        tip_m = self.tool_m("measured")
        over = bool(np.abs(self.block_m - tip_m[:2]).max() < PLAY_M)
        return over and bool(0.0 < tip_m[2] < HEIGHT_M - DEEP_M + NEAR_M)

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
                if self.inserted:
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
