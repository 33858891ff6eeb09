"""Vectorised environments without copies: one row per lane, all values tensors.

A lighter alternative to `VecEnv` for simulators that step thousands of lanes in one Python call: without
episode seeds, infos and gradients.
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
    parts: Float[Tensor, "n k"]  # cost terms, weighted by `reward_of` as the curriculum says
    terminated: Bool[Tensor, " n"]
    truncated: Bool[Tensor, " n"]


@runtime_checkable
class TensorEnv(Protocol):
    """Environment of n lanes. obs holds the inputs of actor and critic (see `views`), each scaled to about
    one.
    """

    num: int
    obs: Float[Tensor, "n f"]
    views: Views
    num_parts: int

    def restart(self) -> None:
        """Restart all lanes, with ages drawn as if they had run for long."""
        ...

    def step(self, action: Float[Tensor, "n a"]) -> TensorStep: ...

    def advance_curriculum(self) -> None:
        """Move to the next stage of the curriculum, in which cost terms have larger weights."""
        ...

    def reward_of(
        self, parts: Float[Tensor, "... k"], terminated: Bool[Tensor, "..."]
    ) -> Float[Tensor, "..."]:
        """Reward of a step with these cost terms, in the current stage of the curriculum."""
        ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...
