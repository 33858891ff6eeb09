"""A lane: one simulator as NumPy sees it. `WorkerVecEnv` runs many of them, in this process or in workers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from robo_rl.core.spec import EnvSpec

LaneObs = Mapping[str, NDArray[Any]]  # key -> (*shape), one environment, no batch axis
LaneStep = tuple[LaneObs, float, bool, bool, bool]  # obs, reward, terminated, truncated, success


@runtime_checkable
class Lane(Protocol):
    """One environment. An episode is a pure function of (seed, actions), whatever ran in this object before.

    The arrays it returns are read at once and may be reused by the next call. A lane never resets itself, and
    it must truncate at `spec.max_episode_steps`.
    """

    spec: EnvSpec
    info_keys: tuple[
        str, ...
    ]  # names of what `info` returns; become info[...] arrays of the vector environment

    def reset(self, seed: int) -> LaneObs: ...

    def step(self, action: NDArray[np.float32]) -> LaneStep:
        """action: (a,) within the limits of `spec.action`, in its units. `success`: does the task count as
        solved?
        """
        ...

    def info(self) -> Sequence[float]:
        """Extra scalars of the step just made, in the order of `info_keys`."""
        ...

    def render(self) -> NDArray[np.uint8]:
        """(h, w, 3) picture of the present state; leaves the simulation as it is."""
        ...

    def close(self) -> None: ...


# Builds a lane. Must be picklable to run in worker processes: a module-level function or dataclass, no
# lambda. An attribute `preload` may name modules that are imported once and shared by all workers; see
# `WorkerPool`.
MakeLane = Callable[[], Lane]
