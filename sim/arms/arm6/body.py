"""The simulated arm: MuJoCo's C engine in this process, stepped by the caller."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
from jaxtyping import Float
from numpy import ndarray

ASSET = Path(__file__).resolve().parents[2] / "assets" / "arm6.xml"
JOINTS: tuple[str, ...] = ("base", "shoulder", "elbow", "forearm", "wrist", "flange")
HOME_RAD = (0.0, 0.4, 1.2, 0.0, 0.9, 0.0)


@cache
def arm_model() -> Any:
    """The compiled model; shared, because nothing changes it."""
    return mujoco.MjModel.from_xml_path(str(ASSET))


class SimulatedArm:
    """One arm. Positions in rad, in the order of `JOINTS`; the tool in m, in the world."""

    names = JOINTS

    def __init__(self, model: Any = None) -> None:
        self.model = arm_model() if model is None else model
        self.data: Any = mujoco.MjData(self.model)
        self._tool = self.model.site("tool").id
        self.low_rad, self.high_rad = self.model.jnt_range.T.copy()
        self._left_s = 0.0
        self.place(np.array(HOME_RAD))

    def place(self, position_rad: Float[ndarray, " 6"]) -> None:
        """At rest there, its servos pulling nowhere else."""
        mujoco.mj_resetData(self.model, self.data)
        self.data.qpos[:] = position_rad
        self.data.ctrl[:] = position_rad
        self._left_s = 0.0
        mujoco.mj_forward(self.model, self.data)

    def reset(self) -> None:
        """At home, at rest."""
        self.place(np.array(HOME_RAD))

    def read(self) -> tuple[Float[ndarray, " 6"], Float[ndarray, " 6"]]:
        """(position [rad], velocity [rad/s]), copies."""
        return self.data.qpos.copy(), self.data.qvel.copy()

    def command(self, position_rad: Float[ndarray, " 6"]) -> None:
        """Where the servos pull from now on, kept within the joints' ranges."""
        self.data.ctrl[:] = np.clip(position_rad, self.low_rad, self.high_rad)

    def advance(self, dt_s: float) -> None:
        """Let time pass; what is less than a step of the engine is kept for the next call."""
        step_s = self.model.opt.timestep
        steps = int((self._left_s + dt_s) / step_s + 1e-6)
        self._left_s += dt_s - steps * step_s
        mujoco.mj_step(self.model, self.data, steps)
        mujoco.mj_kinematics(self.model, self.data)  # sites belong to the state that was reached

    def tool_m(self) -> Float[ndarray, " 3"]:
        """Where the tool is."""
        place: Float[ndarray, " 3"] = self.data.site_xpos[self._tool].copy()
        return place

    def show_goal(self, goal_m: Float[ndarray, " 3"]) -> None:
        """The red ball of pictures."""
        self.data.mocap_pos[0] = goal_m

    def jacobian(self) -> Float[ndarray, "3 6"]:
        """d tool / d joints, at the present position."""
        jac = np.zeros((3, self.model.nv))
        mujoco.mj_comPos(self.model, self.data)
        mujoco.mj_jacSite(self.model, self.data, jac, None, self._tool)
        return jac
