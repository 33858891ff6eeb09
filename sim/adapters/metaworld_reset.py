"""MetaWorld resets that depend on the seed only, at half the package's cost, with bit-identical results.

The package draws the random vector of a task in one reset and runs the task with it in later ones; each of
its `reset`s simulates the hand's way to the start twice, and leftovers of earlier episodes (bodies moved in
the model, live views of simulator arrays) leak into later ones. Here a reset first restores model and
attributes of the newly built environment, then draws with a dry run that moves bodies but
simulates nothing, and then runs the package's own `reset_model` with that draw. The result equals that of a
new package environment which is given the same draw by `set_task` and then reset: tests compare all 50 tasks
bit by bit.
"""

from __future__ import annotations

from typing import Any

import mujoco
import numpy as np
from gymnasium.utils import seeding
from numpy.typing import NDArray


class PureReset:
    """Resets of one package environment; make it right after the environment."""

    def __init__(self, env: Any) -> None:
        self._env = env
        # The package moves bodies and sites, and nothing else in the model.
        self._body_pos = env.model.body_pos.copy()
        self._site_pos = env.model.site_pos.copy()
        self._attributes = _copied(env.__dict__)
        self._hand_key: tuple[bytes, int] | None = None  # what the motion to `_after_hand` depends on
        self._after_hand = mujoco.MjData(env.model)

    def reset(self, seed: int) -> NDArray[np.float64]:
        """First observation (39,), with the present frame twice in its stack."""
        env = self._env
        self._restore()
        env.np_random, _ = seeding.np_random(seed)
        self._draw()
        mujoco.mj_resetData(env.model, env.data)
        env._reset_hand = self._move_hand
        obs: NDArray[np.float64] = env.reset_model()
        del env._reset_hand
        obs[18:36] = obs[:18]
        env._prev_obs = obs[:18].copy()
        return obs

    def _restore(self) -> None:
        env = self._env
        env.model.body_pos[:] = self._body_pos
        env.model.site_pos[:] = self._site_pos
        env.__dict__.clear()
        env.__dict__.update(_copied(self._attributes))
        mujoco.mj_resetData(env.model, env.data)
        mujoco.mj_forward(env.model, env.data)  # the dry run reads positions of the restored model

    def _draw(self) -> None:
        """Draw the random vector, with the task's rejection sampling, and freeze it."""
        env = self._env

        def stay(steps: int = 50) -> None:
            env.init_tcp = env.tcp_center

        env._freeze_rand_vec = False
        env._reset_hand = stay
        env.reset_model()
        del env._reset_hand
        env._freeze_rand_vec = True

    def _move_hand(self, steps: int = 50) -> None:
        """Simulate the hand's motion to its start, or copy the cached result.

        A third of the tasks move no body in the model, so the same motion ends in the same state.
        """
        env, model, data = self._env, self._env.model, self._env.data
        key = (model.body_pos.tobytes(), steps)
        if key == self._hand_key:
            mujoco.mj_copyData(data, model, self._after_hand)
        else:
            data.mocap_pos[0], data.mocap_quat[0] = env.hand_init_pos, (1.0, 0.0, 1.0, 0.0)
            data.ctrl[:] = (-1.0, 1.0)
            mujoco.mj_step(model, data, nstep=steps * env.frame_skip)
            mujoco.mj_copyData(self._after_hand, model, data)
            self._hand_key = key
        env.init_tcp = env.tcp_center


def _copied(attributes: dict[str, Any]) -> dict[str, Any]:
    """Copies of arrays that own their data; views of simulator arrays and other values stay as they are."""
    return {
        name: value.copy() if isinstance(value, np.ndarray) and value.base is None else value
        for name, value in attributes.items()
    }
