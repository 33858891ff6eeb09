"""Conditions: what a policy makes of an observation, once per plan.

A condition is the flat features of the observation, or a tree (`ConditionTree`) that holds more than that,
such as the keys and values of a prefix, with its features as `.pooled`. Both have one row per observation,
and indexing selects rows.

A policy with a memory also reads, under the key `MEMORY` of an observation, what it made of its earlier
decisions. Its condition then has a `.moment`, which the executor appends to the memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias, runtime_checkable

import torch
from torch import Tensor

from robo_rl.core.errors import ConfigError
from robo_rl.core.shapes import Float

Obs = dict[str, Tensor]
HELD = "held"  # (b, K) in a training window: False for decisions before the episode
MEMORY = "memory"  # (b, K, 1 + c), the newest last: 1 and the moment of a decision, or zeros for no decision


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


def memory_shape(policy: Any) -> tuple[int, int] | None:
    """(K, 1 + c) of a policy's memory of its last K decisions; None for a policy without one."""
    shape: tuple[int, int] | None = getattr(policy, "memory_shape", None)
    return shape


def empty_memory(policy: Any, rows: int, device: torch.device | str = "cpu") -> Obs:
    """Memory at the start of an episode, as part of an observation; no entry for a policy without one."""
    shape = memory_shape(policy)
    return {} if shape is None else {MEMORY: torch.zeros(rows, *shape, device=device)}


def sample_with_moment(policy: Any, obs: Obs, noise: Tensor) -> tuple[Tensor, Float[Tensor, "b c"]]:
    """(chunk, moment of this decision) of a policy with a memory, from one encoding of the observation."""
    own: Callable[[Obs, Tensor], tuple[Tensor, Tensor]] | None = getattr(policy, "sample_with_moment", None)
    if own is not None:
        return own(obs, noise)
    condition = encode(policy, obs)
    return policy.sample_from(condition, noise), moment_of(condition)


def moment_of(condition: Any) -> Float[Tensor, "b c"]:
    """What a memory keeps of this condition. Raises ConfigError for one that does not have it."""
    moment: Tensor | None = getattr(condition, "moment", None)
    if moment is None:
        raise ConfigError(
            f"A policy with a memory plans from a condition with a moment, found {type(condition).__name__}. "
            "Use a method that plans from the policy's own condition, such as steering."
        )
    return moment
