"""EnvPool's C++ environments with box actions (MuJoCo, Fetch, Adroit, MetaWorld, Panda), release 1.2.5.

A pool cannot be seeded twice, so every episode gets a new pool of one environment: a reset builds a
simulator, and an episode is a function of its seed. For EnvPool's full speed use its own interface.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from robo_rl.core.errors import ConfigError, UnknownNameError
from robo_rl.core.spec import ArraySpec, EnvSpec
from sim.adapters.flat import bounded, flat, named
from sim.vec.lane import LaneObs, LaneStep
from sim.vec.options import check_keys, check_reward, check_steps, score

REQUIRES = ("envpool",)
RATES_HZ = {  # control rate by the beginning of a name; the package does not report it
    "MetaWorld/": 80.0,
    "Fetch": 25.0,
    "HandReach": 25.0,
    "HandManipulate": 25.0,
    "AdroitHand": 100.0,
    "Panda": 50.0,
    "Ant-": 20.0,
    "HalfCheetah-": 20.0,
    "Hopper-": 125.0,
    "Humanoid-": 67.0,
    "HumanoidStandup-": 67.0,
    "InvertedDoublePendulum-": 20.0,
    "InvertedPendulum-": 25.0,
    "Pusher-": 20.0,
    "Reacher-": 50.0,
    "Swimmer-": 25.0,
    "Walker2d-": 125.0,
}
IDS = (  # listed ids; any other that begins with a key of RATES_HZ works too
    "FetchReach-v4",
    "FetchPush-v4",
    "FetchPickAndPlace-v4",
    "AdroitHandDoor-v1",
    "AdroitHandPen-v1",
    "MetaWorld/Reach-v3",
    "MetaWorld/PickPlace-v3",
    "PandaPickCube-v1",
    "HalfCheetah-v5",
    "Hopper-v5",
    "Pusher-v5",
)
_SUCCESS = ("is_success", "success", "reward_success")


@dataclass(frozen=True, slots=True)
class EnvPoolLanes:
    """Builder of lanes of `envpool.make_gymnasium(task)`.

    Observation: `state`; dictionaries are concatenated in the order of their keys. reward "sparse": 1 in a
    step that ends with the task solved, which ends the episode unless `terminate_on_success` is False;
    "dense": the environment's own.
    """

    preload: ClassVar[tuple[str, ...]] = ()

    task: str
    reward: str = "sparse"
    max_episode_steps: int | None = None
    terminate_on_success: bool | None = None

    def __post_init__(self) -> None:
        check_reward(self.reward)
        if self.max_episode_steps is not None:
            check_steps(self.max_episode_steps)

    def __call__(self) -> EnvPoolLane:
        return EnvPoolLane(self)


class EnvPoolLane:
    """One environment, in a new pool for each episode; see `sim.vec.lane.Lane`."""

    info_keys: tuple[str, ...] = ()

    def __init__(self, options: EnvPoolLanes) -> None:
        self._options = options
        rate_hz = _rate_hz(options.task)
        self._pool = _make(options, 0)
        obs, info = self._pool.reset()
        space = self._pool.action_space
        if not hasattr(space, "low"):
            raise ConfigError(
                f"'{options.task}' has actions of kind {type(space).__name__}; only Box works here."
            )
        self._keys = [key for key in _SUCCESS if key in info]
        if options.reward == "sparse":
            check_keys(options.task, self._keys)
        first = _first(obs)
        self.spec = EnvSpec(
            f"envpool/{options.task}", {"state": ArraySpec((flat(first).size,), unit=named(first))},
            bounded(options.task, space.low, space.high), int(self._pool.spec.config.max_episode_steps),
            rate_hz,
        )  # fmt: skip
        self._steps = 0

    def reset(self, seed: int) -> LaneObs:
        self._pool.close()
        self._pool = _make(self._options, seed)
        self._steps = 0
        return {"state": flat(_first(self._pool.reset()[0]))}

    def step(self, action: NDArray[np.float32]) -> LaneStep:
        space = self._pool.action_space
        obs, own, ended, cut, info = self._pool.step(action.reshape(1, *space.shape).astype(space.dtype))
        self._steps += 1
        success, options = bool(self._keys) and bool(info[self._keys[0]][0]), self._options
        reward, terminated = score(
            options.reward, options.terminate_on_success, float(own[0]), bool(ended[0]), success
        )
        # Some of the package's environments report the time limit as a termination.
        late = self._steps >= self.spec.max_episode_steps
        truncated = bool(cut[0]) or late
        return {"state": flat(_first(obs))}, reward, terminated, truncated, success

    def info(self) -> Sequence[float]:
        return ()

    def render(self) -> NDArray[np.uint8]:
        """Raises ConfigError: without a screen the package's renderer ends the whole process."""
        raise ConfigError(
            f"envpool/{self._options.task} cannot be rendered. Use the same task of its own package: "
            "metaworld/..., gymrobotics/... or gym/..."
        )

    def close(self) -> None:
        self._pool.close()


def _rate_hz(task: str) -> float:
    """Control rate of a task. Raises UnknownNameError for an unknown id, ConfigError for an unknown rate."""
    import envpool

    known = envpool.list_all_envs()
    if task not in known:
        raise UnknownNameError("envpool environment", task, known)
    rates = [rate_hz for start, rate_hz in RATES_HZ.items() if task.startswith(start)]
    if not rates:
        raise ConfigError(
            f"The control rate of envpool/{task} is not known. Known are ids that begin with: "
            f"{', '.join(RATES_HZ)}."
        )
    return rates[0]


def _make(options: EnvPoolLanes, seed: int) -> Any:
    import envpool

    limit = {} if options.max_episode_steps is None else {"max_episode_steps": options.max_episode_steps}
    return envpool.make_gymnasium(options.task, num_envs=1, num_threads=1, seed=seed % 2**31, **limit)


def _first(obs: Any) -> Any:
    """Observation of the only environment in the pool."""
    return {key: _first(value) for key, value in obs.items()} if isinstance(obs, Mapping) else obs[0]
