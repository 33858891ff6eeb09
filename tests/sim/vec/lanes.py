"""Small lanes whose numbers can be computed by hand, and lanes that fail like simulators."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robo_rl.core.spec import ActionSpec, ArraySpec, EnvSpec
from sim.vec.lane import LaneObs, LaneStep


@dataclass
class CountLane:
    """state = [seed, steps made, sum of actions]. Terminates when the sum reaches `goal`, truncates at
    `limit`.

    Successful while the sum lies in [1, 2): the latch of the vector environment has to remember it
    afterwards.
    """

    limit: int = 5
    goal: float = 3.0
    info_keys: tuple[str, ...] = ("total",)
    closed: bool = False
    _state: NDArray[np.float32] = field(default_factory=lambda: np.zeros(3, np.float32))

    @property
    def spec(self) -> EnvSpec:
        return EnvSpec(
            "toy/count",
            {"state": ArraySpec((3,)), "image.front": ArraySpec((2, 2, 3), "uint8")},
            ActionSpec((-1.0,), (1.0,), "m"),
            self.limit,
            10.0,
        )

    def reset(self, seed: int) -> LaneObs:
        self._state[:] = (seed % 1000, 0, 0)
        return self._obs()

    def step(self, action: NDArray[np.float32]) -> LaneStep:
        self._state[1] += 1
        self._state[2] += action[0]
        total = float(self._state[2])
        terminated, truncated = total >= self.goal, self._state[1] >= self.limit
        return self._obs(), total, terminated, bool(truncated), 1.0 <= total < 2.0

    def info(self) -> Sequence[float]:
        return (float(self._state[2]),)

    def render(self) -> NDArray[np.uint8]:
        return np.full((4, 6, 3), int(self._state[1]), np.uint8)

    def close(self) -> None:
        self.closed = True

    def _obs(self) -> LaneObs:
        return {"state": self._state, "image.front": np.full((2, 2, 3), self._state[1], np.uint8)}


@dataclass
class FailingLane(CountLane):
    """Does `how` at step `at` of the episode with seed `seed` (any seed when None)."""

    how: str = "raise"
    at: int = 2
    seed: int | None = None

    def reset(self, seed: int) -> LaneObs:
        self._armed = self.seed in (None, seed)
        return super().reset(seed)

    def step(self, action: NDArray[np.float32]) -> LaneStep:
        result = super().step(action)
        if self._armed and self._state[1] == self.at:
            fail(self.how)
        return result


def fail(how: str) -> None:
    if how == "raise":
        raise ValueError("the gripper fell off")
    if how == "exit":
        os._exit(7)
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "segfault":
        os.kill(os.getpid(), signal.SIGSEGV)
    if how == "hang":
        time.sleep(3600)


@dataclass(frozen=True)
class Make:
    """Picklable builder of the lanes above."""

    kind: Any = CountLane
    kwargs: tuple[tuple[str, Any], ...] = ()

    def __call__(self) -> Any:
        return self.kind(**dict(self.kwargs))


def make(kind: Any = CountLane, **kwargs: Any) -> Make:
    return Make(kind, tuple(kwargs.items()))
