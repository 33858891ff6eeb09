"""Gymnasium environments with box actions: MuJoCo tasks (Hopper-v5, ...) and a user's own.

`gym/<id>` makes a registered environment. `gym/<module>:<id>` imports the module first, which registers it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from robo_rl.core.errors import ConfigError, EnvError, UnknownNameError
from robo_rl.core.plugins import NOT_FOUND, import_own, lacks
from robo_rl.core.spec import EnvSpec
from sim.adapters.flat import bounded
from sim.adapters.gymnasium_answers import GymnasiumAnswers
from sim.adapters.gymnasium_names import names_beside
from sim.adapters.gymnasium_obs import GymnasiumObs
from sim.render.pictures import LaneRenderer
from sim.vec.lane import LaneObs, LaneStep
from sim.vec.options import check_flag, check_reward, check_steps, score
from sim.vec.vec_env import INFO_KEYS

REPORTS_SUCCESS = "reports_success"  # extra info: 1 from the step on that reports success or its lack
_SUCCESS = ("is_success", "success")
REQUIRES = ("gymnasium", "mujoco")
OWN_ENVIRONMENTS = (
    "robo-rl info. An environment of your own: gym/<module>:<id>, or name its module in ROBO_RL_PLUGINS."
)
IDS = (  # the ones that are tested and listed; any other id with box actions works too
    "Ant-v5",
    "HalfCheetah-v5",
    "Hopper-v5",
    "Humanoid-v5",
    "HumanoidStandup-v5",
    "InvertedDoublePendulum-v5",
    "InvertedPendulum-v5",
    "Pusher-v5",
    "Reacher-v5",
    "Swimmer-v5",
    "Walker2d-v5",
)


@dataclass(frozen=True, slots=True)
class GymnasiumLanes:
    """Builder of lanes of `gymnasium.make(env_id)`.

    Observation: `state`, and `image.<key>` of pictures, see `GymnasiumObs`. Scalars of the environment's
    `info` become extra info. reward "dense": the environment's own; "sparse": 1 in a step that ends with the
    task solved, which ends the episode unless `terminate_on_success` is False. `max_episode_steps` None keeps
    the registered time limit. An environment that does not report success never succeeds.
    """

    preload: ClassVar[tuple[str, ...]] = ("gymnasium.envs.mujoco",)

    env_id: str
    reward: str = "dense"
    max_episode_steps: int | None = None
    terminate_on_success: bool | None = None
    render_size: int = 240

    def __post_init__(self) -> None:
        check_reward(self.reward)
        if self.terminate_on_success is not None:
            check_flag("terminate_on_success", self.terminate_on_success)
        if self.max_episode_steps is not None:
            check_steps(self.max_episode_steps)

    def __call__(self) -> GymnasiumLane:
        return GymnasiumLane(self)


class GymnasiumLane:
    """One environment; see `sim.vec.lane.Lane`."""

    def __init__(self, options: GymnasiumLanes) -> None:
        self._options = options
        self._env = _make(options)
        self._obs = GymnasiumObs(options.env_id, self._env.observation_space)
        self.spec = _spec_of(self._env, options, self._obs)
        self._answers = GymnasiumAnswers(self.spec.name, self._env, self._obs)
        self._answers.reset(seed=0)
        still = _within(self._env.action_space, np.zeros(self.spec.action.dim, np.float32))
        *_, info = self._answers.step(still)
        extra = sorted(key for key in info if _is_extra(key, info[key]))
        self.info_keys: tuple[str, ...] = (*extra, REPORTS_SUCCESS)
        self._reports_success = False  # in the running episode
        self._info: Mapping[str, Any] = {}
        self._seed = self._steps = 0  # of the running episode
        self._pictures = _pictures_of(self._env, options.render_size) if _is_mujoco(self._env) else None

    def reset(self, seed: int) -> LaneObs:
        self._seed, self._steps, self._reports_success = seed, 0, False
        return self._checked(self._answers.reset(seed))

    def step(self, action: NDArray[np.float32]) -> LaneStep:
        self._steps += 1
        obs, reward, terminated, truncated, self._info = self._answers.step(
            _within(self._env.action_space, action)
        )
        reported = [bool(self._info[key]) for key in _SUCCESS if key in self._info]
        self._reports_success |= bool(reported)
        success, options = bool(reported) and reported[0], self._options
        observed = self._checked(obs, reward)
        if options.reward == "sparse" and (terminated or truncated) and not self._reports_success:
            raise EnvError(
                f"reward=sparse pays for success, and '{self.spec.name}' reported none in a whole episode: "
                f"its info lacks {' and '.join(_SUCCESS)}. Add one, or leave out reward=."
            )
        reward, terminated = score(options.reward, options.terminate_on_success, reward, terminated, success)
        return observed, reward, terminated, truncated, success

    def info(self) -> Sequence[float]:
        return [
            *(_number(self._info.get(key)) for key in self.info_keys[:-1]),
            float(self._reports_success),
        ]

    def render(self) -> NDArray[np.uint8]:
        """(s, s, 3), s = render_size, for MuJoCo environments; else the environment's own `rgb_array`."""
        return _own_picture(self._env) if self._pictures is None else self._pictures.render()

    def close(self) -> None:
        if self._pictures is not None:
            self._pictures.close()
        self._env.close()

    def _checked(self, obs: LaneObs, reward: float = 0.0) -> LaneObs:
        """The observation. Raises EnvError if it or the reward is not finite: a policy that learned from them
        would be blamed many steps later.
        """
        state = obs.get("state", ())
        if math.isfinite(reward) and np.isfinite(state).all():
            return obs
        what, found = "reward", f"{reward}"
        if math.isfinite(reward):
            wrong = int(np.flatnonzero(~np.isfinite(state))[0])
            what, found = "observation", f"number {wrong} of state is {state[wrong]}"
        raise EnvError(
            f"The environment '{self.spec.name}' returned a non-finite {what} at step {self._steps} of the "
            f"episode with seed {self._seed} ({found}). Correct the environment."
        )


def _make(options: GymnasiumLanes) -> Any:
    """Environment by id. Raises UnknownNameError for an unregistered id, ConfigError where it fails."""
    import gymnasium

    # The checker warns about every bound and runs in every step.
    settings: dict[str, Any] = {"max_episode_steps": options.max_episode_steps, "disable_env_checker": True}
    module = options.env_id.rpartition(":")[0]
    try:
        if module:
            import_own(module)  # Gymnasium alone does not look into the working directory
        env = gymnasium.make(options.env_id, **settings)
        if not _is_mujoco(env) and "rgb_array" in env.metadata.get("render_modes", ()):
            env.close()
            env = gymnasium.make(options.env_id, render_mode="rgb_array", **settings)
        return env
    except gymnasium.error.UnregisteredEnv as error:
        raise UnknownNameError(
            "gymnasium environment",
            f"gym/{options.env_id}",
            names_beside(options.env_id, gymnasium.registry.values()),
            OWN_ENVIRONMENTS,
        ) from error
    except ModuleNotFoundError as error:
        if not lacks(error, module):
            raise
        raise ConfigError(
            f"'gym/{options.env_id}' names the module '{module}', {NOT_FOUND}. Start in its folder, or "
            "install it."
        ) from error
    except gymnasium.error.Error as error:
        raise ConfigError(f"Gymnasium cannot make '{options.env_id}': {error}") from error


def _spec_of(env: Any, options: GymnasiumLanes, obs: GymnasiumObs) -> EnvSpec:
    from gymnasium.spaces import Box

    action = env.action_space
    if not isinstance(action, Box):
        raise ConfigError(
            f"'{options.env_id}' has actions of kind {type(action).__name__}; expected Box. Wrap the "
            "environment where you register it, in a gymnasium.ActionWrapper of your own."
        )
    limits = bounded(options.env_id, action.low, action.high)
    steps = env.spec.max_episode_steps
    if steps is None:
        raise ConfigError(f"'{options.env_id}' has no time limit; give one: max_episode_steps=1000.")
    return EnvSpec(
        name=f"gym/{options.env_id}",
        obs=obs.spec,
        action=limits,
        max_episode_steps=int(steps),
        control_hz=float(env.metadata.get("render_fps", 1)),
    )


def _within(space: Any, action: NDArray[np.float32]) -> NDArray[Any]:
    """The action in the shape and type of a Box, and inside it: the float32 that is nearest to a limit in
    float64 may lie beyond it.
    """
    shaped = action.reshape(space.shape)
    whole = np.issubdtype(space.dtype, np.integer)
    typed = (np.rint(shaped) if whole else shaped).astype(space.dtype)
    inside: NDArray[Any] = np.clip(typed, space.low, space.high)
    return inside


def _number(value: Any) -> float:
    """An entry of `info`; NaN where it is missing, None or no number."""
    return float(value) if isinstance(value, int | float | np.number | np.bool_) else math.nan


def _is_extra(key: str, value: Any) -> bool:
    return key not in (*INFO_KEYS, REPORTS_SUCCESS) and isinstance(value, int | float | np.number)


def _is_mujoco(env: Any) -> bool:
    return hasattr(env.unwrapped, "mujoco_renderer")


def _own_picture(env: Any) -> NDArray[np.uint8]:
    if env.render_mode != "rgb_array":
        raise ConfigError(f"'{env.spec.id}' cannot be rendered: it has no render mode 'rgb_array'.")
    return np.asarray(env.render(), np.uint8)


def _pictures_of(env: Any, size: int) -> LaneRenderer:
    """Renderer through the environment's own camera: its tracking camera, or its default free one."""
    inner = env.unwrapped
    cameras = [inner.model.camera(i).name for i in range(inner.model.ncam)]
    camera = "track" if "track" in cameras else None
    return LaneRenderer(inner.model, inner.data, size, camera, inner.mujoco_renderer.default_cam_config)
