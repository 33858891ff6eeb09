"""A generative policy with an actor that chooses its initial noise (diffusion steering, DSRL)."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from policies.observation import ObsEncoder
from policies.registry import SavedPolicy
from policies.tuned.fine_tuned import (
    PathPolicy,
    TunedPolicy,
    joined_condition,
    parts,
    rebuild,
    rebuilt_encoder,
    refine_from,
    split_features,
)
from robo_rl.core.action_map import LatentMap
from robo_rl.core.protocols import Obs
from robo_rl.core.shapes import Float
from robo_rl.nets.actor import Actor


class SteeredPolicy(TunedPolicy):
    """chunk = base(obs, ctx + magnitude * actor(obs)); ctx is the noise input or zero (`LatentMap.origin`).

    With a new actor this is the base bit for bit: the stochastic base for origin "gaussian", the base at zero
    noise for origin "zero". encoder: learned with the actor's critics, for the actor; None: it sees the
    base's features.
    """

    kind = "steered"

    def __init__(
        self, base: SavedPolicy, actor: Actor, action_map: LatentMap, encoder: ObsEncoder | None = None
    ) -> None:
        super().__init__(base)
        self.actor, self.map, self.encoder = actor, action_map, encoder

    def encode(self, obs: Obs) -> Any:
        """Condition of the base, which plan and actor share, with the features of the actor's own encoder."""
        return joined_condition(self.base, self.encoder, obs)

    def sample_from(self, features: Any, noise: Float[Tensor, "b Tp a"]) -> Float[Tensor, "b Tp a"]:
        condition, seen = split_features(self.encoder, features)
        return self.base.sample_from(condition, self.steer(seen, noise))

    def steer(
        self, features: Float[Tensor, "b f"], noise: Float[Tensor, "b Tp a"]
    ) -> Float[Tensor, "b Tp a"]:
        """Noise that replaces `noise` as the base's input. features: of the actor."""
        ctx = noise.flatten(1)[:, : self.map.ctx_dim]
        return self.map.to_noise(self.actor.act(features, ctx), ctx)

    def path(
        self, features: Any, noise: Float[Tensor, "b Tp a"]
    ) -> tuple[list[Float[Tensor, "b Tp a"]], list[float]]:
        """Path of the base from the steered noise. Its first point is the noise input, which a head
        receives.
        """
        assert isinstance(self.base, PathPolicy)
        condition, seen = split_features(self.encoder, features)
        points, times = self.base.path(condition, self.steer(seen, noise))
        return [noise, *points[1:]], times

    def refine(self, obs: Obs, action: Float[Tensor, "b a"]) -> Float[Tensor, "b a"]:
        return self.base.refine(obs, action)

    def refine_from(self, features: Any, action: Float[Tensor, "b a"]) -> Float[Tensor, "b a"]:
        """`refine` from the condition of an observation."""
        return refine_from(self.base, split_features(self.encoder, features)[0], action)

    def config(self) -> dict[str, Any]:
        return parts(self.base, self.actor, self.encoder) | {"steering": self.map.config()}

    @classmethod
    def from_config(cls, data: dict[str, Any]) -> SteeredPolicy:
        base, actor = rebuild(data)
        action_map = LatentMap(base.chunk, base.action_spec.dim, **data["steering"])
        return cls(base, actor, action_map, rebuilt_encoder(base, data))
