"""Vectorised environments without copies: one row per lane, all values tensors.

The light counterpart of `VecEnv`, for simulators that step thousands of lanes in one Python call: no episode
seeds, no infos, and no gradient.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from torch import Tensor

from robo_rl.core.shapes import Bool, Float
from robo_rl.core.views import Views


@dataclass(frozen=True, slots=True)
class TensorStep:
    """One step of n lanes."""

    final_obs: Float[Tensor, "n f"]  # after the step, before ended lanes restart
    reward: Float[Tensor, " n"]
    parts: Float[Tensor, "n k"]  # terms of the cost; `reward_of` weighs them by the curriculum
    terminated: Bool[Tensor, " n"]
    truncated: Bool[Tensor, " n"]


@runtime_checkable
class TensorEnv(Protocol):
    """Environment of n lanes. obs holds the inputs of actor and critic (see `views`), each of order one."""

    num: int
    obs: Float[Tensor, "n f"]
    views: Views
    num_parts: int

    def restart(self) -> None:
        """Start fresh lanes, with ages as if they had been running for long."""
        ...

    def step(self, action: Float[Tensor, "n a"]) -> TensorStep: ...

    def harden(self) -> None:
        """Move to the next stage of the curriculum: cost terms weigh more from now on."""
        ...

    def reward_of(
        self, parts: Float[Tensor, "... k"], terminated: Bool[Tensor, "..."]
    ) -> Float[Tensor, "..."]:
        """Reward of a step with these cost terms, in the current stage of the curriculum."""
        ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...
