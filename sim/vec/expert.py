"""What an expert is: a policy that may read the simulator's state, for demonstrations and interventions."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from jaxtyping import Float, Int
from torch import Tensor

from robo_rl.core.protocols import Obs, VecEnv


@runtime_checkable
class Expert(Protocol):
    """A policy that may look at the simulator's state. Pure: the same arguments give the same actions."""

    def act(self, obs: Obs, episode_seed: Int[Tensor, " n"], step: Int[Tensor, " n"]) -> Float[Tensor, "n a"]:
        """obs: (n, *shape). episode_seed: of the running episodes. step: steps made since their resets."""
        ...


@runtime_checkable
class WatchingExpert(Expert, Protocol):
    """An expert that reads the environment's state. It acts once per step, in all lanes of one environment."""

    def watch(self, env: VecEnv) -> None:
        """Set the environment whose lanes it acts in; called before the first `act`."""
        ...

    def memory(self) -> Tensor:
        """Copy of its state in the running episodes: part of a snapshot."""
        ...

    def recall(self, memory: Tensor) -> None:
        """Restore the state that `memory` returned."""
        ...
