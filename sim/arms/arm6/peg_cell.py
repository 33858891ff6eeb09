"""Cell of the simulated arm for recording: a peg in its hand, and a block with a hole.

Randomisation: `reset` places the block within +-5 cm along x and y, and the arm above the middle. Successive
places are those of the R2 sequence (Roberts 2018) with an offset by the seed: any ten of them cover the field
evenly, as a careful operator would place a real block, where ten random places leave half of it empty.
The tip of the peg is the tool. Peg and block touch; the arm touches nothing.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import mujoco
import numpy as np
from numpy import ndarray

from robo_rl.core.shapes import Float
from sim.arms.arm6.body import ASSET, JOINTS, SimulatedArm

START_RAD = (0.0, 0.14, 1.67, 0.0, np.pi - 1.81, 0.0)  # hand straight down
CAMERAS = ("front", "wrist")
PEG_M, HOLE_M, WALL_M, HEIGHT_M = (
    0.012,
    0.016,
    0.04,
    0.10,
)  # radius; half-widths of hole and wall; block's height
MIDDLE_M, FIELD_M = (0.42, 0.0), 0.05  # block's mean place and the half-width of its distribution
PLASTIC = 1.32471795724474602596  # x^3 = x + 1; its inverse powers are the steps of the R2 sequence
STEPS = np.array([1.0 / PLASTIC, 1.0 / PLASTIC**2])


@cache
def peg_model() -> Any:
    """Compiled model of arm, peg, block and cameras."""
    spec = mujoco.MjSpec.from_file(str(ASSET))
    stiff = {"solref": [0.004, 1.0], "solimp": [0.95, 0.99, 0.001, 0.5, 2.0]}  # else the arm presses through
    touching = {"contype": 1, "conaffinity": 1, "friction": [0.3, 0.005, 0.0001], **stiff}
    flange = spec.body("flange")
    flange.geoms[0].fromto = [0, 0, 0, 0, 0, 0.03]  # what was the tool holds the peg
    flange.add_geom(
        type=mujoco.mjtGeom.mjGEOM_CAPSULE,
        fromto=[0, 0, 0.04, 0, 0, 0.10 - PEG_M],
        size=[PEG_M, 0, 0],
        rgba=[0.95, 0.62, 0.1, 1],
        density=200,
        **touching,
    )
    spec.site("tool").group = 4  # hidden in pictures
    flange.add_camera(name="wrist", pos=[0.09, 0, -0.02], xyaxes=[0, 1, 0, 0.9, 0, 0.4], fovy=75)
    spec.worldbody.add_camera(name="front", pos=[0.92, -0.4, 0.42], xyaxes=[0.62, 0.78, 0, -0.36, 0.28, 0.89])
    block = spec.worldbody.add_body(name="block", mocap=True, pos=[*MIDDLE_M, 0.0])
    half, height = HOLE_M + WALL_M, HEIGHT_M / 2
    for x, y, size in (
        (HOLE_M + WALL_M / 2, 0.0, [WALL_M / 2, half, height]),
        (-HOLE_M - WALL_M / 2, 0.0, [WALL_M / 2, half, height]),
        (0.0, HOLE_M + WALL_M / 2, [HOLE_M, WALL_M / 2, height]),
        (0.0, -HOLE_M - WALL_M / 2, [HOLE_M, WALL_M / 2, height]),
    ):
        block.add_geom(
            type=mujoco.mjtGeom.mjGEOM_BOX,
            pos=[x, y, height],
            size=size,
            rgba=[0.24, 0.55, 0.45, 1],
            **touching,
        )
    goal = spec.body("goal")
    goal.pos = [0.0, 0.0, -1.0]  # the red ball of the reaching task is out of sight
    return spec.compile()


class PegCell:
    """The arm with its peg, and a block that `reset` places anew; see `hardware.nodes.sim_robot.SimArm`."""

    names = JOINTS

    def __init__(self, seed: int = 0) -> None:
        self.body = SimulatedArm(peg_model())
        self._share = np.random.default_rng(seed).uniform(size=2)  # of the field, along x and y
        self._block = self.body.model.body("block").mocapid[0]
        self.reset()

    def reset(self) -> None:
        """Place the block, and the arm above the middle of the field, at rest."""
        self._share = (self._share + STEPS) % 1.0
        self.place(self._share)

    def place(self, share: Float[ndarray, " 2"]) -> None:
        """Place the block at this share of the field along x and y, each in [0, 1], and the arm at its start,
        at rest.
        """
        self.body.place(np.array(START_RAD))
        shift_m = FIELD_M * (2.0 * share - 1.0)
        self.body.data.mocap_pos[self._block][:2] = np.array(MIDDLE_M) + shift_m
        mujoco.mj_forward(self.body.model, self.body.data)

    @property
    def block_m(self) -> Float[ndarray, " 2"]:
        """Middle of the block, x and y."""
        middle: Float[ndarray, " 2"] = self.body.data.mocap_pos[self._block][:2].copy()
        return middle

    def read(self) -> tuple[Float[ndarray, " 6"], Float[ndarray, " 6"]]:
        return self.body.read()

    def command(self, position_rad: Float[ndarray, " 6"]) -> None:
        self.body.command(position_rad)

    def advance(self, dt_s: float) -> None:
        self.body.advance(dt_s)

    def shapes(self) -> list[dict[str, Any]]:
        """Shapes of arm, peg and block, for viewers."""
        return self.body.shapes()

    def depth_m(self) -> float:
        """Depth of the peg's tip below the block's top, where it is over the hole; else 0."""
        return depth_m(self.body.tool_m(), self.block_m)


def depth_m(tip_m: Float[ndarray, " 3"], block_m: Float[ndarray, " 2"]) -> float:
    """Depth of the peg's tip below the block's top, where it is over the hole; else 0."""
    inside = bool((np.abs(tip_m[:2] - block_m) < HOLE_M).all())
    return max(0.0, HEIGHT_M - float(tip_m[2])) if inside else 0.0
