"""MetaWorld as published, with which our adapter is compared bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.utils import seeding
from numpy.typing import NDArray


def package_env(task: str) -> Any:
    from metaworld.env_dict import ALL_V3_ENVIRONMENTS

    env = ALL_V3_ENVIRONMENTS[task]()
    env._partially_observable = False
    del env.sawyer_observation_space
    env._set_task_called = True
    env.seeded_rand_vec = True
    return env


def package_reset(task: str, seed: int) -> tuple[Any, NDArray[np.float64]]:
    """A new environment with the random vector of `seed`, set as by `set_task`, after its own `reset`."""
    drawing = package_env(task)
    drawing._freeze_rand_vec = False
    drawing.np_random, _ = seeding.np_random(seed)
    drawing.reset_model()
    env = package_env(task)
    env._last_rand_vec = drawing._last_rand_vec.copy()
    obs, _ = env.reset()
    return env, obs
