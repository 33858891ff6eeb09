"""Scripted expert of `arm6/peg`: over the hole, then down into it, with the hand as at the start.

    v = clip(3 (goal - tip), 0.15 m/s) ;   w = 3 e ;   dq = J# (v, w) ;   action = q + 0.2 s dq + noise

The goal is above the hole until the tip is over it, then in the hole. e: rotation from the hand's pose to
that at the start. J#: damped least squares. 0.2 s: delay of the servos. Without noise an action is a function
of the observation.
"""

from __future__ import annotations

import mujoco
import numpy as np
import torch
from numpy import ndarray
from torch import Tensor

from robo_rl.core.errors import ConfigError
from robo_rl.core.protocols import Obs
from robo_rl.core.seeding import derive_seed
from robo_rl.core.shapes import Float, Int
from sim.arms.arm6.body import JOINTS
from sim.arms.arm6.peg import BLOCK
from sim.arms.arm6.peg_cell import HEIGHT_M, START_RAD, PegCell

SPEED_M_S, GAIN_HZ, LAG_S, NOISE_RAD = 0.15, 3.0, 0.2, 0.03
OVER_M, DEEP_M, NEAR_M = 0.02, 0.06, 0.003  # above the block; depth of the goal; sideways
_DAMPING = 0.02


class PegExpert:
    """noise: standard deviation of independent noise on its actions, as a share of 0.03 rad."""

    def __init__(self, task: str = "peg", noise: float = 0.0, seed: int = 0) -> None:
        if not 0.0 <= noise < float("inf"):
            raise ConfigError(
                f"noise is {noise}; expected a standard deviation of 0 or more, as a share of 0.03 rad."
            )
        self._noise_rad, self._seed, self._body = NOISE_RAD * noise, seed, PegCell().body
        self._flange = self._body.model.body("flange").id
        self._body.place(np.array(START_RAD))
        self._upright = self._hand()

    def act(self, obs: Obs, episode_seed: Int[Tensor, " n"], step: Int[Tensor, " n"]) -> Float[Tensor, "n 6"]:
        states, blocks = (obs[key].cpu().numpy().astype(np.float64) for key in ("state", BLOCK))
        actions = np.stack([self._one(*each) for each in zip(states[:, :6], blocks, strict=True)])
        if self._noise_rad > 0.0:
            pairs = zip(episode_seed.tolist(), step.tolist(), strict=True)
            actions = actions + self._noise_rad * np.stack([self._draw(*pair) for pair in pairs])
        actions = np.clip(actions, self._body.low_rad, self._body.high_rad)
        return torch.from_numpy(actions.astype(np.float32))

    def _one(self, q_rad: Float[ndarray, " 6"], block_m: Float[ndarray, " 2"]) -> Float[ndarray, " 6"]:
        self._body.place(q_rad)
        tip_m = self._body.tool_m()
        over = bool(np.abs(block_m - tip_m[:2]).max() < NEAR_M) or tip_m[2] < HEIGHT_M
        goal_m = np.append(block_m, HEIGHT_M - DEEP_M if over else HEIGHT_M + OVER_M)
        speed_m_s = GAIN_HZ * (goal_m - tip_m)
        speed_m_s *= min(1.0, SPEED_M_S / max(float(np.linalg.norm(speed_m_s)), 1e-9))
        wanted = np.concatenate([speed_m_s, GAIN_HZ * rotation_to(self._upright, self._hand())])
        jacobian = self._jacobian()
        square = jacobian @ jacobian.T + _DAMPING**2 * np.eye(6)
        action: Float[ndarray, " 6"] = q_rad + LAG_S * (jacobian.T @ np.linalg.solve(square, wanted))
        return action

    def _hand(self) -> Float[ndarray, "3 3"]:
        """Rotation of the hand in the world."""
        rotation: Float[ndarray, "3 3"] = self._body.data.xmat[self._flange].reshape(3, 3).copy()
        return rotation

    def _jacobian(self) -> Float[ndarray, "6 6"]:
        """d (place, rotation) of the tip / d joints, in the world."""
        model, data = self._body.model, self._body.data
        move, turn = np.zeros((3, model.nv)), np.zeros((3, model.nv))
        mujoco.mj_jacSite(model, data, move, turn, model.site("tool").id)
        return np.concatenate([move, turn])[:, : len(JOINTS)]

    def _draw(self, episode_seed: int, step: int) -> Float[ndarray, " 6"]:
        seed = derive_seed("peg expert", self._seed, episode_seed, step)
        return np.random.Generator(np.random.Philox(seed)).standard_normal(len(JOINTS))


def rotation_to(goal: Float[ndarray, "3 3"], now: Float[ndarray, "3 3"]) -> Float[ndarray, " 3"]:
    """Rotation vector in the world that turns `now` into `goal`."""
    quat, turn = np.zeros(4), np.zeros(3)
    mujoco.mju_mat2Quat(quat, (goal @ now.T).ravel())
    mujoco.mju_quat2Vel(turn, quat, 1.0)
    return turn
