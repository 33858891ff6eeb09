"""Interface of a lane: one environment with NumPy arrays. `WorkerVecEnv` runs many of them."""

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
    """One environment. An episode is a pure function of (seed, actions), independent of earlier episodes.

    The caller reads returned arrays at once; the next call may reuse them. A lane never resets itself and
    truncates at `spec.max_episode_steps`.
    """

    spec: EnvSpec
    info_keys: tuple[str, ...]  # names of the scalars of `info`, which the vector environment passes on

    def reset(self, seed: int) -> LaneObs:
        """Start the episode of `seed`; the first observation."""
        ...

    def step(self, action: NDArray[np.float32]) -> LaneStep:
        """Make one control step. action: (a,) within the limits of `spec.action`, in its units.

        The last value is `success`: the task counts as solved in this step.
        """
        ...

    def info(self) -> Sequence[float]:
        """Extra scalars of the last step, in the order of `info_keys`."""
        ...

    def render(self) -> NDArray[np.uint8]:
        """(h, w, 3) picture of the present state; does not change the simulation."""
        ...

    def close(self) -> None:
        """Free the simulator."""
        ...


@runtime_checkable
class PictureLane(Protocol):
    """A lane that may leave pictures out of an observation that nobody reads."""

    unread: bool  # True: the next step may return observations without pictures, unless it ends the episode


# Builds a lane. Workers need it picklable: a module-level function or a dataclass, no lambda. Its attribute
# `preload` may name modules that are imported once and shared by all workers; see `start_worker`.
MakeLane = Callable[[], Lane]
