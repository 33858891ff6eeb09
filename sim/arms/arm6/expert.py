"""Scripted expert for the arm: inverse kinematics, then a slow motion to the goal.

    v = clip((q* - q) / lag, +-1.2 rad/s), within 0.6 dq +- 0.4 rad/s ;   action = q + lag v + noise

q* puts the tool at the goal (damped least squares over the first three joints, the others at home). The
servos follow a moving command with a delay of `lag`, so the command is ahead by that much; near the goal it
is q* itself, so that a learner's error does not become a velocity. It is a function of the observation alone,
except for the noise.
"""

from __future__ import annotations

from collections import OrderedDict

import numpy as np
import torch
from numpy import ndarray
from torch import Tensor

from robo_rl.core.errors import ConfigError, UnknownNameError
from robo_rl.core.protocols import Obs
from robo_rl.core.seeding import derive_seed
from robo_rl.core.shapes import Float, Int
from sim.arms.arm6.body import HOME_RAD, SimulatedArm
from sim.arms.arm6.reach import CONTROL_HZ, TASKS, Arm6ReachTask

LAG_S, SPEED_RAD_S, CHANGE_RAD_S, EASE = 0.2, 1.2, 0.4, 0.6
_DAMPING_M, _REMEMBERED = 0.02, 4096


class ArmExpert:
    """Expert with noise. noise: standard deviation of the AR(1) noise on its actions, as a share of 0.06 rad;
    correlation time 0.2 s.
    """

    def __init__(self, task: str, noise: float = 0.0, seed: int = 0) -> None:
        if task not in TASKS:
            raise UnknownNameError("arm task", task, TASKS)
        if not 0.0 <= noise < float("inf"):
            raise ConfigError(
                f"noise is {noise}; expected a standard deviation of 0 or more, as a share of 0.06 rad."
            )
        self._noise, self._seed, self._body = noise, seed, SimulatedArm()
        self._poses: OrderedDict[bytes, Float[ndarray, " 6"]] = OrderedDict()
        self._draws: OrderedDict[int, Float[ndarray, "t 6"]] = OrderedDict()

    def act(self, obs: Obs, episode_seed: Int[Tensor, " n"], step: Int[Tensor, " n"]) -> Float[Tensor, "n 6"]:
        states = obs["state"].cpu().numpy().astype(np.float64)
        actions = np.stack([self._one(state) for state in states])
        if self._noise > 0.0:
            pairs = zip(episode_seed.tolist(), step.tolist(), strict=True)
            actions = actions + 0.06 * self._noise * np.stack([self._draw(seed, t)[t] for seed, t in pairs])
        clipped = np.clip(
            actions, *Arm6ReachTask(HOME_RAD).action_limits(self._body.low_rad, self._body.high_rad)
        )
        return torch.from_numpy(clipped.astype(np.float32))

    def _one(self, state: Float[ndarray, " 15"]) -> Float[ndarray, " 6"]:
        q, dq, goal_m = state[:6], state[6:12], state[12:]
        wanted = np.clip((self._pose(goal_m) - q) / LAG_S, -SPEED_RAD_S, SPEED_RAD_S)
        begun = EASE * dq
        action: Float[ndarray, " 6"] = q + LAG_S * (
            begun + np.clip(wanted - begun, -CHANGE_RAD_S, CHANGE_RAD_S)
        )
        return action

    def _pose(self, goal_m: Float[ndarray, " 3"]) -> Float[ndarray, " 6"]:
        """q*, cached."""
        key = goal_m.astype(np.float32).tobytes()
        if key not in self._poses:
            self._poses[key] = inverse_kinematics(self._body, goal_m)
            if len(self._poses) > _REMEMBERED:
                self._poses.popitem(last=False)
        return self._poses[key]

    def _draw(self, episode_seed: int, step: int) -> Float[ndarray, "t 6"]:
        """AR(1) noise of one episode, of unit variance, at least up to `step`."""
        have = self._draws.get(episode_seed)
        if have is None or len(have) <= step:
            rng = np.random.default_rng(derive_seed("arm expert", self._seed, episode_seed))
            keep = float(np.exp(-1.0 / (0.2 * CONTROL_HZ)))
            length = 256 * (1 + step // 256)
            rows = rng.standard_normal((length, 6))
            for t in range(1, length):
                rows[t] = keep * rows[t - 1] + np.sqrt(1.0 - keep * keep) * rows[t]
            self._draws[episode_seed] = rows
            if len(self._draws) > _REMEMBERED:
                self._draws.popitem(last=False)
        return self._draws[episode_seed]


def inverse_kinematics(
    body: SimulatedArm, goal_m: Float[ndarray, " 3"], steps: int = 60
) -> Float[ndarray, " 6"]:
    """Pose near home with the tool at the goal, or as near as its first three joints allow. Moves `body`."""
    pose = np.array(HOME_RAD)
    for _ in range(steps):
        body.place(pose)
        missing = goal_m - body.tool_m()
        if np.linalg.norm(missing) < 1e-4:
            break
        jac = body.jacobian()[:, :3]
        turn = jac.T @ np.linalg.solve(jac @ jac.T + _DAMPING_M**2 * np.eye(3), missing)
        pose[:3] += np.clip(turn, -0.2, 0.2)
    return pose
