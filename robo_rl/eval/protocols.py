"""Protocols of the objects that evaluation uses; it imports neither policies nor simulators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

from robo_rl.core.protocols import ChunkPolicy, Executor, Obs, VecEnv

ExecutorFactory = Callable[[ChunkPolicy, int], Executor]  # (policy, lanes) -> executor; ChunkExecutor is one
Progress = Callable[[int], object]  # called with the number of episodes just finished, as `tqdm.update`


@runtime_checkable
class Watcher(Protocol):
    """Observer of a running evaluation, for videos."""

    def before_step(self, env: VecEnv, obs: Obs) -> None:
        """The current observations of all lanes."""
        ...

    def after_step(self, lane: int, success: bool) -> None:
        """Success of this lane's episode so far; called for every lane."""
        ...

    def episode_end(self, lane: int, seed: int, success: bool, length: int) -> None: ...
