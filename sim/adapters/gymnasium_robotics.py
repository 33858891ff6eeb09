"""Gymnasium-Robotics: Fetch, Shadow hand, Adroit hand, Franka kitchen, mazes; for its release 1.4.2."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass
from io import StringIO
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from robo_rl.core.errors import ConfigError, UnknownNameError
from robo_rl.core.spec import ArraySpec, EnvSpec
from sim.adapters.flat import bounded, flat, named
from sim.render.pictures import LaneRenderer
from sim.vec.lane import LaneObs, LaneStep
from sim.vec.options import check_keys, check_reward, check_steps, score

REQUIRES = ("gymnasium_robotics", "mujoco", "gymnasium")
IDS = (  # listed ids; any other of the package works too
    "FetchReach-v4",
    "FetchPush-v4",
    "FetchSlide-v4",
    "FetchPickAndPlace-v4",
    "HandReach-v3",
    "HandManipulateBlock-v1",
    "HandManipulateEgg-v1",
    "HandManipulatePen-v1",
    "AdroitHandDoor-v1",
    "AdroitHandHammer-v1",
    "AdroitHandPen-v1",
    "AdroitHandRelocate-v1",
    "FrankaKitchen-v1",
    "PointMaze_UMaze-v3",
    "AntMaze_UMaze-v5",
)
_SUCCESS = ("is_success", "success")
_LEFT = "tasks_to_complete"  # of the kitchen: solved when none is left
_SIMULATORS = ("", "robot_env", "point_env", "ant_env")  # where an environment keeps its MuJoCo model


@dataclass(frozen=True, slots=True)
class RoboticsLanes:
    """Builder of lanes of `gymnasium.make(task)`.

    Observation: `state`, the values in the order of their keys: achieved goal, desired goal, observation.
    reward "sparse": 1 in a step that ends with the task solved, which ends the episode unless
    `terminate_on_success` is False; "dense": the environment's own.
    """

    preload: ClassVar[tuple[str, ...]] = ("gymnasium.envs.mujoco",)

    task: str
    reward: str = "sparse"
    max_episode_steps: int | None = None
    terminate_on_success: bool | None = None
    render_size: int = 240

    def __post_init__(self) -> None:
        check_reward(self.reward)
        if self.max_episode_steps is not None:
            check_steps(self.max_episode_steps)

    def __call__(self) -> RoboticsLane:
        return RoboticsLane(self)


class RoboticsLane:
    """One environment; see `sim.vec.lane.Lane`."""

    info_keys: tuple[str, ...] = ()

    def __init__(self, options: RoboticsLanes) -> None:
        self._options = options
        self._env = _make(options)
        obs, _ = self._env.reset(seed=0)
        space = self._env.action_space
        *_, info = self._env.step(np.zeros(space.shape, space.dtype))
        self._keys = [key for key in (*_SUCCESS, _LEFT) if key in info]
        if options.reward == "sparse":
            check_keys(options.task, self._keys)
        self.spec = EnvSpec(
            f"gymrobotics/{options.task}", {"state": ArraySpec((flat(obs).size,), unit=named(obs))},
            bounded(options.task, space.low, space.high), int(self._env.spec.max_episode_steps),
            float(self._env.metadata.get("render_fps", 1)),
        )  # fmt: skip
        self._pictures: LaneRenderer | None = None

    def reset(self, seed: int) -> LaneObs:
        obs, _ = self._env.reset(seed=seed)
        return {"state": flat(obs)}

    def step(self, action: NDArray[np.float32]) -> LaneStep:
        space = self._env.action_space
        obs, own, terminated, truncated, info = self._env.step(
            action.reshape(space.shape).astype(space.dtype)
        )
        success = self._solved(info)
        options = self._options
        reward, terminated = score(
            options.reward, options.terminate_on_success, float(own), bool(terminated), success
        )
        return {"state": flat(obs)}, reward, terminated, bool(truncated), success

    def info(self) -> Sequence[float]:
        return ()

    def render(self) -> NDArray[np.uint8]:
        """(s, s, 3), s = render_size, from the environment's own default view."""
        if self._pictures is None:
            inner = _simulator(self._env)
            view = inner.mujoco_renderer.default_cam_config
            self._pictures = LaneRenderer(inner.model, inner.data, self._options.render_size, None, view)
        return self._pictures.render()

    def close(self) -> None:
        if self._pictures is not None:
            self._pictures.close()
        self._env.close()

    def _solved(self, info: Any) -> bool:
        key = self._keys[0] if self._keys else None
        return key is not None and (not info[key] if key == _LEFT else bool(info[key]))


def _make(options: RoboticsLanes) -> Any:
    """Environment by id. Raises UnknownNameError for an id that the package does not have."""
    import gymnasium

    with redirect_stderr(StringIO()):  # the package prints notes on its releases there
        import gymnasium_robotics

    gymnasium.register_envs(gymnasium_robotics)
    spec = gymnasium.registry.get(options.task)
    if spec is None or not str(spec.entry_point).startswith("gymnasium_robotics"):
        known = [
            name for name, each in gymnasium.registry.items() if "gymnasium_robotics" in str(each.entry_point)
        ]
        raise UnknownNameError("gymrobotics environment", options.task, known)
    try:
        return gymnasium.make(
            options.task, max_episode_steps=options.max_episode_steps, disable_env_checker=True
        )
    except gymnasium.error.Error as error:
        raise ConfigError(f"Gymnasium-Robotics cannot make '{options.task}': {error}") from error


def _simulator(env: Any) -> Any:
    """Object that holds the MuJoCo model. Raises ConfigError where there is none."""
    for name in _SIMULATORS:
        inner = getattr(env.unwrapped, name, None) if name else env.unwrapped
        inner = getattr(inner, "unwrapped", inner)
        if hasattr(inner, "model") and hasattr(inner, "mujoco_renderer"):
            return inner
    raise ConfigError(
        f"'{env.spec.id}' cannot be rendered: its MuJoCo model was not found. Leave out its pictures."
    )
