"""Push-T: a disc pushes a T-shaped block onto its goal, in the simulator of the package `gym-pusht`.

The step uses plain floats and a cached outline of the goal: nearly twice as fast, bit-identical results.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robo_rl.core.errors import UnknownNameError
from robo_rl.core.spec import ActionSpec, ArraySpec, EnvSpec
from sim.vec.lane import LaneObs, LaneStep
from sim.vec.options import check_reward, check_steps

CONTROL_HZ = 10.0
SOLVED_COVERAGE = 0.95  # fraction of the goal's area that the block covers
TABLE_PX = 512.0
IMAGE_PX = 96
REQUIRES = ("gym_pusht", "pymunk", "pygame", "shapely", "cv2")

OBS: dict[str, dict[str, ArraySpec]] = {
    "state": {"state": ArraySpec((5,), "float32", "px, rad")},
    "keypoints": {"state": ArraySpec((18,), "float32", "px")},
    "pixels": {
        "image.front": ArraySpec((IMAGE_PX, IMAGE_PX, 3), "uint8"),
        "state": ArraySpec((2,), "float32", "px"),
    },
}
VARIANTS = tuple(OBS)
_OBS_TYPE = {"state": "state", "keypoints": "environment_state_agent_pos", "pixels": "pixels_agent_pos"}


@dataclass(frozen=True, slots=True)
class PushTLanes:
    """Builder of lanes.

    Observations: "state" (5,) agent x, y, block x, y in px and block angle in [0, 2 pi); "keypoints" (18,)
    agent x, y and the block's 8 corners x, y in px; "pixels" `image.front` and `state` (2,) agent x, y.
    Action: target position of the agent, px. reward "dense": min(coverage / 0.95, 1); "sparse": 1 in the step
    that solves the task. The episode ends there. Extra info: `coverage` of this step and `max_coverage` since
    the reset, fractions of the goal.
    """

    variant: str
    reward: str = "dense"
    max_episode_steps: int = 300
    render_size: int = 256

    def __post_init__(self) -> None:
        if self.variant not in OBS:
            raise UnknownNameError("pusht observation", self.variant, OBS)
        check_reward(self.reward)
        check_steps(self.max_episode_steps)

    @property
    def spec(self) -> EnvSpec:
        return EnvSpec(
            name=f"pusht/{self.variant}",
            obs=OBS[self.variant],
            action=ActionSpec((0.0, 0.0), (TABLE_PX, TABLE_PX), "px"),
            max_episode_steps=self.max_episode_steps,
            control_hz=CONTROL_HZ,
        )

    def __call__(self) -> PushTLane:
        return PushTLane(self)


class PushTLane:
    """One table; see `sim.vec.lane.Lane`."""

    info_keys: tuple[str, ...] = ("coverage", "max_coverage")

    def __init__(self, options: PushTLanes) -> None:
        os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")  # else pygame prints when it is imported
        from gym_pusht.envs.pusht import PushTEnv, pymunk_to_shapely

        self._outline = pymunk_to_shapely
        self._goal: Any = None  # outline of the goal, the same in every episode
        self._options, self.spec = options, options.spec
        size = options.render_size
        self._env = PushTEnv(_OBS_TYPE[options.variant], visualization_width=size, visualization_height=size)
        self._steps, self._coverage, self._max_coverage = 0, 0.0, 0.0

    def reset(self, seed: int) -> LaneObs:
        obs, _ = self._env.reset(seed=seed)
        self._steps, self._coverage, self._max_coverage = 0, 0.0, 0.0
        return self._named(obs)

    def step(self, action: NDArray[np.float32]) -> LaneStep:
        self._simulate(float(action[0]), float(action[1]))
        self._env._last_action = action  # rendered as a cross
        self._steps += 1
        self._coverage = self._cover()
        self._max_coverage = max(self._max_coverage, self._coverage)
        success = self._coverage > SOLVED_COVERAGE
        reward = (
            min(self._coverage / SOLVED_COVERAGE, 1.0) if self._options.reward == "dense" else float(success)
        )
        obs, truncated = self._named(self._env.get_obs()), self._steps >= self._options.max_episode_steps
        return obs, reward, success, truncated, success

    def info(self) -> Sequence[float]:
        return self._coverage, self._max_coverage

    def render(self) -> NDArray[np.uint8]:
        """(s, s, 3), s = render_size; the last action is a red cross."""
        picture: NDArray[np.uint8] = self._env.render()
        return picture

    def close(self) -> None:
        self._env.close()

    def _simulate(self, goal_x_px: float, goal_y_px: float) -> None:
        """Simulate 0.1 s in steps of 10 ms; the agent accelerates by k_p (goal - position) - k_v velocity."""
        env, agent = self._env, self._env.agent
        dt_s, k_p, k_v = env.dt, env.k_p, env.k_v
        for _ in range(int(1 / (dt_s * CONTROL_HZ))):
            (x, y), (speed_x, speed_y) = agent.position, agent.velocity
            acceleration_x = k_p * (goal_x_px - x) + k_v * (0 - speed_x)
            acceleration_y = k_p * (goal_y_px - y) + k_v * (0 - speed_y)
            agent.velocity = speed_x + acceleration_x * dt_s, speed_y + acceleration_y * dt_s
            env.space.step(dt_s)

    def _cover(self) -> float:
        """Fraction of the goal's area that the block covers."""
        env = self._env
        if self._goal is None:
            self._goal = self._outline(env.get_goal_pose_body(env.goal_pose), env.block.shapes)
        return float(
            self._goal.intersection(self._outline(env.block, env.block.shapes)).area / self._goal.area
        )

    def _named(self, obs: Any) -> LaneObs:
        if self._options.variant == "state":
            return {"state": obs}
        if self._options.variant == "keypoints":
            return {"state": np.concatenate((obs["agent_pos"], obs["environment_state"]))}
        return {"image.front": obs["pixels"], "state": obs["agent_pos"]}
