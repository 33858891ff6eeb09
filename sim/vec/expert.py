"""Protocols of experts: policies for demonstrations and interventions that may read the simulator's state."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from torch import Tensor

from robo_rl.core.protocols import Obs, VecEnv
from robo_rl.core.shapes import Float, Int


@runtime_checkable
class Expert(Protocol):
    """A policy that may read the simulator's state. Pure: the same arguments give the same actions."""

    def act(self, obs: Obs, episode_seed: Int[Tensor, " n"], step: Int[Tensor, " n"]) -> Float[Tensor, "n a"]:
        """Actions in the units of `spec.action`.

        obs: (n, *shape). episode_seed: seeds of the running episodes. step: steps since their resets.
        """
        ...


@runtime_checkable
class WatchingExpert(Expert, Protocol):
    """Expert that reads the environment's state. It acts once per step, in all lanes of one environment."""

    def watch(self, env: VecEnv) -> None:
        """Set the environment whose lanes it acts in; called before the first `act`."""
        ...

    def memory(self) -> Tensor:
        """Copy of the expert's state in the running episodes, which is part of a snapshot."""
        ...

    def recall(self, memory: Tensor) -> None:
        """Restore the state that `memory` returned."""
        ...
