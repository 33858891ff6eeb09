"""What a learner that takes rewards asks of many lanes that step together: rows are lanes, all tensors, no
copies.

The light counterpart of `VecEnv`, for simulators that fly thousands of lanes in the time of one Python call:
no episode seeds, no infos, and no gradient.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from jaxtyping import Bool, Float
from torch import Tensor

from robo_rl.core.views import Views


@dataclass(frozen=True, slots=True)
class RowStep:
    """One step of n lanes."""

    final_obs: Float[Tensor, "n f"]  # after the step, before ended lanes began anew
    reward: Float[Tensor, " n"]
    parts: Float[Tensor, "n k"]  # of the cost, of which `reward_of` makes the reward of another curriculum
    terminated: Bool[Tensor, " n"]
    truncated: Bool[Tensor, " n"]


@runtime_checkable
class RowEnv(Protocol):
    """obs holds what `views` divides between actor and critic, each number already of size one."""

    num: int
    obs: Float[Tensor, "n f"]
    views: Views
    num_parts: int

    def restart(self) -> None:
        """Fresh lanes, of ages as if they had been going on for long."""
        ...

    def step(self, action: Float[Tensor, "n a"]) -> RowStep: ...

    def harden(self) -> None:
        """The next lesson of the curriculum: parts weigh more from now on."""
        ...

    def reward_of(
        self, parts: Float[Tensor, "... k"], terminated: Bool[Tensor, "..."]
    ) -> Float[Tensor, "..."]:
        """The reward of a step with these parts, in the lesson of now."""
        ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...
