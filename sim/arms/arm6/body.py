"""Simulated six-axis arm: C MuJoCo in this process, stepped by the caller."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
from numpy import ndarray

from robo_rl.core.shapes import Float
from sim.arms.arm6.shapes import scene_shapes

ASSET = Path(__file__).resolve().parents[2] / "assets" / "arm6.xml"
JOINTS: tuple[str, ...] = ("base", "shoulder", "elbow", "forearm", "wrist", "flange")
HOME_RAD = (0.0, 0.4, 1.2, 0.0, 0.9, 0.0)


@cache
def arm_model() -> Any:
    """Compiled model; shared, because nothing changes it."""
    return mujoco.MjModel.from_xml_path(str(ASSET))


class SimulatedArm:
    """One arm. Positions in rad, in the order of `names`; the tool in m, in the world.

    model: compiled model whose first joints are those of the arm, with an actuator for each of `names`;
    home: their positions at a reset. Without them, the arm of `JOINTS` alone.
    """

    def __init__(
        self, model: Any = None, names: tuple[str, ...] = JOINTS, home: tuple[float, ...] = HOME_RAD
    ) -> None:
        self.model = arm_model() if model is None else model
        self.names, self._home, self._joints = names, np.array(home), len(names)
        self.data: Any = mujoco.MjData(self.model)
        self._tool = self.model.site("tool").id
        self.low_rad, self.high_rad = self.model.jnt_range[: self._joints].T.copy()
        self._left_s = 0.0
        self.place(self._home)

    def place(self, position_rad: Float[ndarray, " j"]) -> None:
        """Put the arm at rest at these joint positions, with servo targets there."""
        mujoco.mj_resetData(self.model, self.data)
        self.data.qpos[: self._joints] = position_rad
        self.data.qpos[self._joints :] = position_rad[-1]  # the finger that follows the other one
        self.data.ctrl[:] = position_rad
        self._left_s = 0.0
        mujoco.mj_forward(self.model, self.data)

    def reset(self) -> None:
        """Put the arm at rest at home."""
        self.place(self._home)

    def read(self) -> tuple[Float[ndarray, " j"], Float[ndarray, " j"]]:
        """Joint positions [rad] and velocities [rad/s], as copies."""
        return self.data.qpos[: self._joints].copy(), self.data.qvel[: self._joints].copy()

    def command(self, position_rad: Float[ndarray, " j"]) -> None:
        """Set the servo targets, clipped to the joint ranges."""
        self.data.ctrl[:] = np.clip(position_rad, self.low_rad, self.high_rad)

    def advance(self, dt_s: float) -> None:
        """Advance the time; a remainder below one physics step is kept for the next call."""
        step_s = self.model.opt.timestep
        steps = int((self._left_s + dt_s) / step_s + 1e-6)
        self._left_s += dt_s - steps * step_s
        mujoco.mj_step(self.model, self.data, steps)
        mujoco.mj_kinematics(self.model, self.data)  # site positions of the new state

    def tool_m(self) -> Float[ndarray, " 3"]:
        """Position of the tool."""
        place: Float[ndarray, " 3"] = self.data.site_xpos[self._tool].copy()
        return place

    def shapes(self) -> list[dict[str, Any]]:
        """Shapes of the arm and its scene, for viewers."""
        return scene_shapes(self.model, self.data)

    def show_goal(self, goal_m: Float[ndarray, " 3"]) -> None:
        """Place the red ball of pictures."""
        self.data.mocap_pos[0] = goal_m
        mujoco.mj_kinematics(self.model, self.data)  # a picture may be taken before the next step

    def jacobian(self) -> Float[ndarray, "3 6"]:
        """d tool / d joints, at the present position."""
        jac = np.zeros((3, self.model.nv))
        mujoco.mj_comPos(self.model, self.data)
        mujoco.mj_jacSite(self.model, self.data, jac, None, self._tool)
        return jac
