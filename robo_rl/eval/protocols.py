"""What evaluation asks of the objects that `apps` hands to it; it imports neither policies nor simulators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

from jaxtyping import Float, Int
from torch import Tensor

from robo_rl.core.protocols import ChunkPolicy, Obs, VecEnv


@runtime_checkable
class NoiseSource(Protocol):
    """Gives the noise of decision d of the episode that each lane is in."""

    def reset(self, rows: Sequence[int], episode_seeds: Sequence[int]) -> None: ...

    def draw(self, rows: Sequence[int], decision: Sequence[int]) -> Float[Tensor, "k Tp a"]: ...


@runtime_checkable
class Executor(Protocol):
    """The part of `ChunkExecutor` that a rollout drives."""

    def reset(self, obs: Obs, rows: Int[Tensor, " k"] | None = None) -> None: ...

    def observe(self, obs: Obs, rows: Int[Tensor, " k"] | None = None) -> None: ...

    def act(self, noise: NoiseSource) -> Float[Tensor, "n a"]:
        """The action for all lanes, in [-1, 1]."""
        ...


ExecutorFactory = Callable[
    [ChunkPolicy, int], Executor
]  # (policy, lanes) -> executor; the class ChunkExecutor is one
Progress = Callable[
    [int], object
]  # called with the number of episodes just finished: `tqdm(...).update` fits


@runtime_checkable
class Watcher(Protocol):
    """Looks on while an evaluation runs, for videos."""

    def before_step(self, env: VecEnv) -> None: ...

    def after_step(self, lane: int, success: bool) -> None:
        """Success of this lane's episode so far; called for every lane."""
        ...

    def episode_end(self, lane: int, seed: int, success: bool, length: int) -> None: ...
