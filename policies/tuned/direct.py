"""Policy without a base, for reinforcement learning from scratch (SAC, TD3, RLPD, WSRL, RLIF)."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from robo_rl.core.errors import ConfigError
from robo_rl.core.protocols import Obs
from robo_rl.core.shapes import Float
from robo_rl.core.spec import EnvSpec, sense_of
from robo_rl.data.normalizer import Normalizer
from robo_rl.nets.actor import Actor, ActorConfig, make_actor


class DirectPolicy(nn.Module):
    """action = actor(features), one action at a time.

    Without an actor, at the start of learning, actions are uniform over the limits: the normal noise input
    mapped through its distribution function. Features are the float observations, normalised if a fitted
    normaliser is given.
    """

    kind = "direct"
    obs_steps = chunk = execute = 1

    def __init__(
        self, env: EnvSpec, normalizer: Normalizer | None = None, actor: Actor | None = None
    ) -> None:
        super().__init__()
        env = env.for_policies()
        self.env, self.obs_spec, self.action_spec = env, env.obs, env.action
        if any(sense_of(key, array) != "state" for key, array in env.obs.items()):
            raise ConfigError(
                f"Learning from scratch needs state observations; {env.name} has {sorted(env.obs)}. Train "
                "a base policy on images first (robo-rl train) and fine-tune it."
            )
        keys = {key: array.shape for key, array in env.obs.items()}
        self.normalizer = Normalizer(keys, clip=float("inf")) if normalizer is None else normalizer
        self.actor = actor

    def features(self, obs: Obs) -> Float[Tensor, "b f"]:
        values = self.normalizer.normalize(obs)
        return torch.cat([values[key].flatten(1) for key in self.normalizer.keys], dim=-1)

    def sample(self, obs: Obs, noise: Float[Tensor, "b 1 a"]) -> Float[Tensor, "b 1 a"]:
        return self.sample_from(self.features(obs), noise)

    def sample_from(
        self, features: Float[Tensor, "b f"], noise: Float[Tensor, "b 1 a"]
    ) -> Float[Tensor, "b 1 a"]:
        if self.actor is None:
            return torch.erf(noise / math.sqrt(2.0))
        return self.actor.mode(features).unsqueeze(1)

    def refine(self, obs: Obs, action: Float[Tensor, "b a"]) -> Float[Tensor, "b a"]:
        return action

    def config(self) -> dict[str, Any]:
        actor = None if self.actor is None else self.actor.config.to_json()
        return {"env": self.env.to_json(), "actor": actor, "clip": str(self.normalizer.clip)}

    @classmethod
    def from_config(cls, data: dict[str, Any]) -> DirectPolicy:
        env = EnvSpec.from_json(data["env"])
        normalizer = Normalizer({key: array.shape for key, array in env.obs.items()}, float(data["clip"]))
        return cls(
            env,
            normalizer,
            None if data["actor"] is None else make_actor(ActorConfig.from_json(data["actor"])),
        )
