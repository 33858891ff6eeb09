"""robosuite's tasks of one arm with state observations, release 1.5.1. Actions are the package's hand poses.

The package draws from NumPy's global generator and rebuilds its model at every reset. Here that generator is
seeded for an episode and restored afterwards, and the model, with its object sizes, is built once.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from robo_rl.core.errors import UnknownNameError
from robo_rl.core.spec import ArraySpec, EnvSpec
from sim.adapters.flat import bounded
from sim.render.pictures import LaneRenderer
from sim.vec.lane import LaneObs, LaneStep
from sim.vec.options import check_reward, check_steps, score

REQUIRES = ("robosuite", "mujoco")
TASKS = (
    "Lift",
    "Stack",
    "NutAssembly",
    "NutAssemblySingle",
    "NutAssemblySquare",
    "NutAssemblyRound",
    "PickPlace",
    "PickPlaceSingle",
    "PickPlaceMilk",
    "PickPlaceBread",
    "PickPlaceCereal",
    "PickPlaceCan",
    "Door",
    "Wipe",
    "ToolHang",
)
CONTROL_HZ = 20.0
_PARTS = ("robot0_proprio-state", "object-state")


@dataclass(frozen=True, slots=True)
class RobosuiteLanes:
    """Builder of lanes of one task with a Panda.

    Observation: `state`, the package's vector of the robot, then that of the objects where a task has one.
    reward "sparse": 1 in a step that ends with the task solved, which ends the episode unless
    `terminate_on_success` is False; "dense": the package's shaped reward.
    """

    preload: ClassVar[tuple[str, ...]] = ("mujoco",)

    task: str
    reward: str = "sparse"
    max_episode_steps: int = 200
    terminate_on_success: bool | None = None
    render_size: int = 240

    def __post_init__(self) -> None:
        if self.task not in TASKS:
            raise UnknownNameError("robosuite task", self.task, TASKS)
        check_reward(self.reward)
        check_steps(self.max_episode_steps)

    def __call__(self) -> RobosuiteLane:
        return RobosuiteLane(self)


class RobosuiteLane:
    """One simulation; see `sim.vec.lane.Lane`."""

    info_keys: tuple[str, ...] = ()

    def __init__(self, options: RobosuiteLanes) -> None:
        self._options = options
        with _quiet(), _seeded(0):  # one seed gives all lanes the same model
            self._env = _make(options)
            obs = self._env.reset()
        low, high = self._env.action_spec
        self._parts = [part for part in _PARTS if part in obs]
        self.spec = EnvSpec(
            f"robosuite/{options.task}",
            {
                "state": ArraySpec(
                    (self._state(obs).size,), unit=", ".join(f"{p} {obs[p].size}" for p in self._parts)
                )
            },
            bounded(options.task, low, high),
            options.max_episode_steps,
            CONTROL_HZ,
        )
        self._steps = 0
        self._pictures: LaneRenderer | None = None

    def reset(self, seed: int) -> LaneObs:
        with _quiet(), _seeded(seed):
            obs = self._env.reset()
        self._steps = 0
        return {"state": self._state(obs)}

    def step(self, action: NDArray[np.float32]) -> LaneStep:
        obs, own, _, _ = self._env.step(action.astype(np.float64))
        self._steps += 1
        success, options = bool(self._env._check_success()), self._options
        reward, terminated = score(options.reward, options.terminate_on_success, float(own), False, success)
        return (
            {"state": self._state(obs)},
            reward,
            terminated,
            self._steps >= options.max_episode_steps,
            success,
        )

    def info(self) -> Sequence[float]:
        return ()

    def render(self) -> NDArray[np.uint8]:
        """(s, s, 3), s = render_size, from the front."""
        if self._pictures is None:
            model, data = self._env.sim.model._model, self._env.sim.data._data
            model.geom_rgba[model.geom_group == 0, 3] = 0.0  # hide collision shapes
            self._pictures = LaneRenderer(model, data, self._options.render_size, "frontview")
        return self._pictures.render()

    def close(self) -> None:
        if self._pictures is not None:
            self._pictures.close()
        self._env.close()

    def _state(self, obs: Any) -> NDArray[np.float64]:
        return np.concatenate([obs[part] for part in self._parts])


def _make(options: RobosuiteLanes) -> Any:
    import robosuite

    return robosuite.make(
        options.task, robots="Panda", has_renderer=False, has_offscreen_renderer=False, use_camera_obs=False,
        hard_reset=False, ignore_done=True, control_freq=CONTROL_HZ, reward_shaping=options.reward == "dense",
    )  # fmt: skip


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Seed NumPy's global generator inside the block, and restore its state afterwards."""
    kept = np.random.get_state()  # noqa: NPY002  # the package draws from it
    np.random.seed(seed % 2**32)  # noqa: NPY002
    try:
        yield
    finally:
        np.random.set_state(kept)  # noqa: NPY002


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the package, which logs notes on macros and files at every import and build."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)
