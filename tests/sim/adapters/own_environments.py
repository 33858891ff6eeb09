"""Gymnasium environments of a user: numbers and pictures as robots give them."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np


class Rig(gymnasium.Env[Any, Any]):
    """Numbers and pictures as robots give them: a dictionary, one level of which is nested."""

    observation_space: gymnasium.Space[Any] = gymnasium.spaces.Dict(
        {
            "wrist": gymnasium.spaces.Box(0, 255, (4, 6, 3), np.uint8),
            "joints": gymnasium.spaces.Box(-9.0, 9.0, (3,), np.float64),
            "arm/views": gymnasium.spaces.Dict({"top": gymnasium.spaces.Box(0, 255, (2, 2, 3), np.uint8)}),
            "goal": gymnasium.spaces.Dict(
                {"yaw": gymnasium.spaces.Box(-9.0, 9.0, ()), "at": gymnasium.spaces.Box(-9.0, 9.0, (1, 2))}
            ),
        }
    )
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,))

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.t = 0
        return self.seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.t += 1
        return self.seen(), 1.0, False, False, {}

    def seen(self) -> Any:
        t = self.t
        return {
            "wrist": np.full((4, 6, 3), t, np.uint8),
            "joints": t + np.array([0.1, 0.2, 0.3]),
            "arm/views": {"top": np.full((2, 2, 3), 100 + t, np.uint8)},
            "goal": {"yaw": np.float32(7.0), "at": np.array([[5.0, 6.0]], np.float32)},
        }


class Camera(Rig):
    observation_space = gymnasium.spaces.Box(0, 255, (4, 6, 3), np.uint8)

    def seen(self) -> Any:
        return super().seen()["wrist"]
