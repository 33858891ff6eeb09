"""Conditions: what a policy makes of an observation, once per plan.

A condition is the flat features of the observation, or a tree (`ConditionTree`) that holds more than that,
such as the keys and values of a prefix, with its features as `.pooled`. Both have one row per observation,
and indexing selects rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias, runtime_checkable

from torch import Tensor

from robo_rl.core.shapes import Float

Obs = dict[str, Tensor]


@runtime_checkable
class ConditionTree(Protocol):
    """A condition that is a tree."""

    @property
    def pooled(self) -> Float[Tensor, "b f"]:
        """Input of actors and critics."""
        ...

    def __len__(self) -> int: ...
    def __getitem__(self, rows: Any) -> Any: ...


Condition: TypeAlias = Tensor | ConditionTree


def encode(policy: Any, obs: Obs) -> Any:
    """Condition of observations (b, To, *shape), from which `policy.sample_from` makes a chunk.

    The features of the policy, unless it has `encode`. (`Any`, because torch.export traces this function.)
    """
    made: Callable[[Obs], Any] = getattr(policy, "encode", policy.features)
    return made(obs)


def pooled(condition: Any) -> Float[Tensor, "b f"]:
    """Features of a condition, for actors and critics."""
    features: Tensor = condition if isinstance(condition, Tensor) else condition.pooled
    return features
