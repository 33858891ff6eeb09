"""A generative policy whose initial noise an actor chooses (diffusion steering, DSRL)."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from policies.registry import SavedPolicy
from policies.tuned.fine_tuned import Walker, frozen_base, parts, rebuild
from robo_rl.core.action_map import LatentMap
from robo_rl.core.protocols import Obs
from robo_rl.core.shapes import Float
from robo_rl.nets.actor import Actor


class SteeredPolicy(nn.Module):
    """chunk = base(obs, ctx + magnitude * actor(obs)), with ctx the caller's noise or zero
    (`LatentMap.origin`).

    With a fresh actor this is the base bit for bit: the stochastic base for origin "gaussian", the base at
    zero noise for origin "zero".
    """

    kind = "steered"
    base: SavedPolicy

    def __init__(self, base: SavedPolicy, actor: Actor, action_map: LatentMap) -> None:
        super().__init__()
        self.base, self.actor, self.map = frozen_base(base), actor, action_map
        self.obs_spec, self.action_spec = base.obs_spec, base.action_spec
        self.obs_steps, self.chunk, self.execute = base.obs_steps, base.chunk, base.execute

    def features(self, obs: Obs) -> Float[Tensor, "b f"]:
        return self.base.features(obs)

    def sample(self, obs: Obs, noise: Float[Tensor, "b Tp a"]) -> Float[Tensor, "b Tp a"]:
        return self.sample_from(self.features(obs), noise)

    def sample_from(
        self, features: Float[Tensor, "b f"], noise: Float[Tensor, "b Tp a"]
    ) -> Float[Tensor, "b Tp a"]:
        return self.base.sample_from(features, self.steer(features, noise))

    def steer(
        self, features: Float[Tensor, "b f"], noise: Float[Tensor, "b Tp a"]
    ) -> Float[Tensor, "b Tp a"]:
        """The noise that the base gets in place of `noise`."""
        ctx = noise.flatten(1)[:, : self.map.ctx_dim]
        return self.map.to_noise(self.actor.act(features, ctx), ctx)

    def path(
        self, features: Float[Tensor, "b f"], noise: Float[Tensor, "b Tp a"]
    ) -> tuple[list[Float[Tensor, "b Tp a"]], list[float]]:
        """The base's walk from the steered noise; its first point is the caller's noise, which is what a head
        sees.
        """
        assert isinstance(self.base, Walker)
        points, times = self.base.path(features, self.steer(features, noise))
        return [noise, *points[1:]], times

    def refine(self, obs: Obs, action: Float[Tensor, "b a"]) -> Float[Tensor, "b a"]:
        return self.base.refine(obs, action)

    def config(self) -> dict[str, Any]:
        return parts(self.base, self.actor) | {"steering": self.map.config()}

    @classmethod
    def from_config(cls, data: dict[str, Any]) -> SteeredPolicy:
        base, actor = rebuild(data)
        return cls(base, actor, LatentMap(base.chunk, base.action_spec.dim, **data["steering"]))
