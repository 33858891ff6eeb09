"""Tasks of the arm as lanes of a vector environment: joint position targets in, joint state and goal out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy import ndarray
from numpy.typing import NDArray

from robo_rl.core.errors import UnknownNameError
from robo_rl.core.shapes import Float
from sim.arms.arm6.body import HOME_RAD, SimulatedArm
from sim.arms.arm6.reach import CONTROL_HZ, TASKS, Arm6ReachTask, reach_spec
from sim.render.pictures import LaneRenderer
from sim.vec.lane import LaneObs, LaneStep
from sim.vec.options import check_reward, check_steps

REQUIRES = ("mujoco",)


@dataclass(frozen=True, slots=True)
class ArmLanes:
    """Builder of lanes of `arm6/reach`."""

    task: str
    reward: str = "sparse"
    max_episode_steps: int | None = None
    render_size: int = 240

    def __post_init__(self) -> None:
        if self.task not in TASKS:
            raise UnknownNameError("arm task", self.task, TASKS)
        check_reward(self.reward)
        if self.max_episode_steps is not None:
            check_steps(self.max_episode_steps)

    def __call__(self) -> ArmLane:
        return ArmLane(self)


class ArmLane:
    """One arm; see `sim.vec.lane.Lane`."""

    info_keys = ("error_m",)

    def __init__(self, options: ArmLanes) -> None:
        self._options, self._body = options, SimulatedArm()
        task = Arm6ReachTask(HOME_RAD)
        self.task = (
            task if options.max_episode_steps is None else replace(task, max_steps=options.max_episode_steps)
        )
        self.spec = reach_spec(self.task, self._body.names, self._body.low_rad, self._body.high_rad)
        self._goal_m = np.zeros(3)
        self._age = self._held = 0
        self._solved = False
        body = self._body
        self._pictures = LaneRenderer(body.model, body.data, options.render_size, camera="view")

    def reset(self, seed: int) -> LaneObs:
        start_rad, self._goal_m = start_of(self.task, self._body, seed)
        self._body.place(start_rad)
        self._body.show_goal(self._goal_m)
        self._age = self._held = 0
        self._solved = False
        return self._obs()

    def step(self, action: NDArray[np.float32]) -> LaneStep:
        self._body.command(action.astype(np.float64))
        self._body.advance(1.0 / CONTROL_HZ)
        self._age += 1
        tool_m = self._body.tool_m()
        self._held = self._held + 1 if self.task.is_there(tool_m, self._goal_m) else 0
        self._solved = self._solved or self._held >= self.task.hold_steps
        reward = self.task.reward(tool_m, self._goal_m, self._options.reward == "dense")
        return self._obs(), reward, False, self._age >= self.task.max_steps, self._solved

    def info(self) -> Sequence[float]:
        return [float(np.linalg.norm(self._body.tool_m() - self._goal_m))]

    def render(self) -> NDArray[np.uint8]:
        return self._pictures.render()

    def close(self) -> None:
        self._pictures.close()

    def _obs(self) -> LaneObs:
        return {"state": self.task.state(*self._body.read(), self._goal_m)}


def start_of(
    task: Arm6ReachTask, body: SimulatedArm, seed: int
) -> tuple[Float[ndarray, " 6"], Float[ndarray, " 3"]]:
    """Start [rad] and goal [m] of the episode with this seed. Moves `body`."""
    rng = np.random.default_rng(seed)
    start_rad = task.start_rad(rng.uniform(-1.0, 1.0, 6))
    body.place(task.goal_rad(rng.uniform(-1.0, 1.0, 3)))
    return start_rad, body.tool_m()
