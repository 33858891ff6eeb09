"""A Gymnasium environment of your own: a point moves to a goal. Its name is `gym/point_env:Point-v0`.

`record` writes demonstrations of a simple controller as a dataset. The other examples use both.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

import robo_rl as rr
from robo_rl.data.store import DatasetWriter

NAME = "gym/point_env:Point-v0"
STEPS = 20


class Point(gym.Env[NDArray[np.float32], NDArray[np.float32]]):
    """Observation: position and goal [m]. Action: velocity, 1 is 0.1 m per step. Success within 5 cm."""

    metadata = {"render_modes": [], "render_fps": 10}  # noqa: RUF012 (Gymnasium's own field)
    observation_space = gym.spaces.Box(-2.0, 2.0, (4,), np.float32)
    action_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode
        self.place, self.goal = np.zeros(2), np.zeros(2)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        super().reset(seed=seed)
        self.place, self.goal = self.np_random.uniform(-0.5, 0.5, (2, 2))
        return self._obs(), {}

    def step(
        self, action: NDArray[np.float32]
    ) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        self.place = np.clip(self.place + 0.1 * np.clip(action, -1.0, 1.0), -1.0, 1.0)
        success = bool(np.linalg.norm(self.goal - self.place) < 0.05)
        return self._obs(), float(success), success, False, {"is_success": success}

    def _obs(self) -> NDArray[np.float32]:
        return np.concatenate([self.place, self.goal]).astype(np.float32)


gym.register("Point-v0", Point, max_episode_steps=STEPS)


def controller(obs: NDArray[np.float32]) -> NDArray[np.float32]:
    """Move straight to the goal."""
    return np.clip((obs[2:] - obs[:2]) / 0.1, -1.0, 1.0).astype(np.float32)


def record(folder: Path, episodes: int, noise: float = 0.2) -> Path:
    """Demonstrations with noise on the actions, as a dataset."""
    env, rng = gym.make("Point-v0"), np.random.default_rng(0)
    lanes = rr.make_env(NAME)
    with closing(DatasetWriter.create(folder, lanes.spec)) as data:
        for seed in range(episodes):
            obs, _ = env.reset(seed=seed)
            with data.episode(task="reach the goal", seed=seed) as episode:
                ended = success = False
                while not ended:
                    action = np.clip(controller(obs) + rng.normal(0.0, noise, 2), -1.0, 1.0).astype(
                        np.float32
                    )
                    before = obs
                    obs, reward, success, timeout, _ = env.step(action)
                    episode.add({"state": before}, action, reward=float(reward), terminated=success)
                    ended = success or timeout
                episode.commit(success=success, final_obs={"state": obs})
    lanes.close()
    return folder
