"""Common parts of fine-tuned policies: a frozen base, a small actor and an action map."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from torch import Tensor, nn

from policies.registry import SavedPolicy, build, describe
from robo_rl.core.errors import CheckpointError
from robo_rl.nets.actor import Actor, ActorConfig, make_actor


@runtime_checkable
class PathPolicy(Protocol):
    """A policy that samples in several steps and can return the points of its path."""

    def path(self, features: Tensor, noise: Tensor) -> tuple[list[Tensor], list[float]]: ...


def frozen_base(base: SavedPolicy) -> SavedPolicy:
    """The base as a module that is not trained and does not crop at random."""
    assert isinstance(base, nn.Module)
    base.eval().requires_grad_(False)
    return base


def rebuild(data: dict[str, Any]) -> tuple[SavedPolicy, Actor]:
    """(base, actor) with empty weights, from the output of `parts`."""
    base = build(data["base"])
    if not isinstance(base, SavedPolicy):
        raise CheckpointError(
            f"The base of kind '{data['base'].get('kind')}' is not a policy that can be fine-tuned."
        )
    return base, make_actor(ActorConfig.from_json(data["actor"]))


def parts(base: SavedPolicy, actor: Actor) -> dict[str, Any]:
    """Base and actor as JSON values."""
    return {"base": describe(base), "actor": actor.config.to_json()}
