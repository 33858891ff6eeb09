"""Common parts of fine-tuned policies: a frozen base, its contract, and a small actor with an action map."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from policies.observation import EncoderStack, ObsEncoder
from policies.registry import SavedPolicy, build, describe
from robo_rl.core.conditioning import encode, memory_shape, pooled
from robo_rl.core.errors import CheckpointError
from robo_rl.core.protocols import Obs, reads_every_step
from robo_rl.core.shapes import Float
from robo_rl.nets.actor import Actor, ActorConfig, make_actor


@runtime_checkable
class PathPolicy(Protocol):
    """A policy that samples in several steps and can return the points of its path."""

    def path(self, features: Any, noise: Tensor) -> tuple[list[Tensor], list[float]]: ...


class TunedPolicy(nn.Module, ABC):
    """A policy on a frozen base, with the base's observations, actions and horizons.

    Subclasses add `kind`, `config` and `from_config`, too.
    """

    base: SavedPolicy

    def __init__(self, base: SavedPolicy) -> None:
        super().__init__()
        assert isinstance(base, nn.Module)
        base.eval().requires_grad_(False)  # neither trained nor cropped at random
        self.base = base
        self.obs_spec, self.action_spec = base.obs_spec, base.action_spec
        self.obs_steps, self.chunk, self.execute = base.obs_steps, base.chunk, base.execute
        self.memory_shape = memory_shape(base)
        self.reads_every_step = reads_every_step(base)

    def encode(self, obs: Obs) -> Any:
        """Condition from which `sample_from` plans: that of the base."""
        return encode(self.base, obs)

    def features(self, obs: Obs) -> Float[Tensor, "b f"]:
        return pooled(self.encode(obs))

    def sample(self, obs: Obs, noise: Float[Tensor, "b Tp a"]) -> Float[Tensor, "b Tp a"]:
        return self.sample_from(self.encode(obs), noise)

    @abstractmethod
    def sample_from(self, features: Any, noise: Float[Tensor, "b Tp a"]) -> Float[Tensor, "b Tp a"]:
        """The chunk for a condition of `encode` and the base's initial noise."""

    def refine(self, obs: Obs, action: Float[Tensor, "b a"]) -> Float[Tensor, "b a"]:
        """The action, unchanged."""
        return action


def joined_condition(base: SavedPolicy, encoder: ObsEncoder | None, obs: Obs) -> Any:
    """Condition of a fine-tuned policy: its base's, followed by the features of its actor's own encoder.

    An actor with an encoder of its own needs a base whose condition is flat features.
    """
    condition = encode(base, obs)
    return condition if encoder is None else torch.cat([condition, encoder(obs)], dim=-1)


def split_features(encoder: ObsEncoder | None, condition: Any) -> tuple[Any, Float[Tensor, "b actor"]]:
    """(condition of the base, input of the actor) of `joined_condition`."""
    if encoder is None:
        return condition, pooled(condition)
    return condition[:, : -encoder.dim], condition[:, -encoder.dim :]


def newest_encoder(policy: nn.Module | SavedPolicy) -> ObsEncoder | None:
    """The encoder that the last training of a stack of policies has left; None if there is none."""
    encoders = feature_encoders(policy)
    return encoders[-1] if encoders else None


def feature_encoders(policy: nn.Module | SavedPolicy) -> list[ObsEncoder]:
    """Encoders whose outputs are a policy's features, side by side: of its base or of the policy that it was
    imported as, and of each fine-tuning.
    """
    base, own = getattr(policy, "base", getattr(policy, "inner", None)), getattr(policy, "encoder", None)
    below = [] if base is None else feature_encoders(base)
    if isinstance(own, EncoderStack):
        return [*below, *(each for each in own.encoders if isinstance(each, ObsEncoder))]
    return [*below, own] if isinstance(own, ObsEncoder) else below


def corrects_steps(policy: Any) -> bool:
    """True if this policy, or one that it is built on, changes actions between two plans."""
    layer = policy
    while (action_map := getattr(layer, "map", None)) is not None:
        if action_map.timescale == "step":
            return True
        layer = layer.base
    return False


def rebuild(data: dict[str, Any]) -> tuple[SavedPolicy, Actor]:
    """(base, actor) with empty weights, from the output of `parts`."""
    base = build(data["base"])
    if not isinstance(base, SavedPolicy):
        raise CheckpointError(
            f"The base of kind '{data['base'].get('kind')}' is not a policy that can be fine-tuned."
        )
    return base, make_actor(ActorConfig.from_json(data["actor"]))


def rebuilt_encoder(base: SavedPolicy, data: dict[str, Any]) -> ObsEncoder | None:
    """The actor's own encoder with empty weights, from the output of `parts`. It is built as the base's."""
    if not data.get("own_encoder"):  # older policies have no such key
        return None
    encoder = newest_encoder(base)
    if encoder is None:
        raise CheckpointError("The policy has an encoder of its own, but its base has none to build it like.")
    return copy.deepcopy(encoder)


def parts(base: SavedPolicy, actor: Actor, encoder: ObsEncoder | None = None) -> dict[str, Any]:
    """Base, actor, and whether the actor has an encoder of its own, as JSON values."""
    own = {} if encoder is None else {"own_encoder": True}
    return {"base": describe(base), "actor": actor.config.to_json(), **own}


def refine_from(policy: Any, condition: Any, action: Tensor) -> Tensor:
    """Per-step correction of an action from a condition; the action itself for a policy without one."""
    correct = getattr(policy, "refine_from", None)
    return action if correct is None else correct(condition, action)
