"""Policy without a base, for reinforcement learning from scratch (SAC, TD3, RLPD, WSRL, RLIF)."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor, nn

from policies.observation import ObsEncoder
from robo_rl.core.errors import ConfigError
from robo_rl.core.protocols import Obs
from robo_rl.core.shapes import Float
from robo_rl.core.spec import EnvSpec, sense_of
from robo_rl.data.normalizer import Normalizer
from robo_rl.nets.actor import Actor, ActorConfig, make_actor
from robo_rl.nets.image_encoder import ImageEncoderConfig


class DirectPolicy(nn.Module):
    """action = actor(features), one action at a time.

    Without an actor, at the start of learning, actions are uniform over the limits: the normal noise input
    mapped through its distribution function. Features are the float observations, normalised if a fitted
    normaliser is given. encoder: of states and pictures, learned with the actor's critics; None: states only.
    """

    kind = "direct"
    obs_steps = chunk = execute = 1

    def __init__(
        self,
        env: EnvSpec,
        normalizer: Normalizer | None = None,
        actor: Actor | None = None,
        encoder: ObsEncoder | None = None,
    ) -> None:
        super().__init__()
        env = env.for_policies()
        self.env, self.obs_spec, self.action_spec = env, env.obs, env.action
        senses = {key: sense_of(key, array) for key, array in env.obs.items()}
        readable = ("state",) if encoder is None else ("state", "image", "segmentation")
        unread = sorted(key for key, sense in senses.items() if sense not in readable)
        if unread and encoder is not None:
            raise ConfigError(
                f"Learning from scratch reads states and pictures, and {env.name} also has "
                f"{', '.join(unread)}. Leave these out (senses=rgb), or train a base policy on them first "
                "(robo-rl train) and fine-tune it."
            )
        if unread:
            raise ConfigError(
                f"Learning from scratch needs states, or with method.encoder=learned states and pictures; "
                f"{env.name} has {sorted(env.obs)}. Set method.encoder=learned if these are pictures, or "
                "train a base policy on them first (robo-rl train) and fine-tune it."
            )
        keys = {key: env.obs[key].shape for key, sense in senses.items() if sense == "state"}
        self.normalizer = Normalizer(keys, clip=float("inf")) if normalizer is None else normalizer
        self.encoder, self.actor = encoder, actor

    def features(self, obs: Obs) -> Float[Tensor, "b f"]:
        if self.encoder is not None:
            features: Tensor = self.encoder(obs)
            return features
        values = self.normalizer.normalize(obs)
        return torch.cat([values[key].flatten(1) for key in self.normalizer.keys], dim=-1)

    def sample(self, obs: Obs, noise: Float[Tensor, "b 1 a"]) -> Float[Tensor, "b 1 a"]:
        if self.actor is None:  # pictures are not encoded for nothing
            return uniform_actions(noise)
        return self.sample_from(self.features(obs), noise)

    def sample_from(
        self, features: Float[Tensor, "b f"], noise: Float[Tensor, "b 1 a"]
    ) -> Float[Tensor, "b 1 a"]:
        if self.actor is None:
            return uniform_actions(noise)
        return self.actor.mode(features).unsqueeze(1)

    def refine(self, obs: Obs, action: Float[Tensor, "b a"]) -> Float[Tensor, "b a"]:
        return action

    def config(self) -> dict[str, Any]:
        actor = None if self.actor is None else self.actor.config.to_json()
        image = {} if self.encoder is None else {"image": asdict(self.encoder.image)}
        return {"env": self.env.to_json(), "actor": actor, "clip": str(self.normalizer.clip), **image}

    @classmethod
    def from_config(cls, data: dict[str, Any]) -> DirectPolicy:
        env = EnvSpec.from_json(data["env"])
        keys = {key: array.shape for key, array in env.obs.items() if sense_of(key, array) == "state"}
        normalizer = Normalizer(keys, float(data["clip"]))
        actor = None if data["actor"] is None else make_actor(ActorConfig.from_json(data["actor"]))
        encoder = None
        if "image" in data:  # a policy of states has no such key
            encoder = ObsEncoder(env.obs, 1, normalizer, ImageEncoderConfig(**data["image"]))
        return cls(env, normalizer, actor, encoder)


def uniform_actions(noise: Float[Tensor, "b 1 a"]) -> Float[Tensor, "b 1 a"]:
    """Standard normal noise as actions that are uniform in [-1, 1]."""
    return torch.erf(noise / math.sqrt(2.0))
