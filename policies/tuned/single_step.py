"""Single-step head: one network call from noise to action, distilled from a policy that takes K."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from policies.observation import EncoderStack, ObsEncoder
from robo_rl.core.protocols import Obs
from robo_rl.core.shapes import Float
from robo_rl.core.spec import EnvSpec
from robo_rl.data.normalizer import Normalizer
from robo_rl.nets.image_encoder import ImageEncoderConfig
from robo_rl.nets.point_encoder import PointEncoderConfig
from robo_rl.nets.registry import NetConfig, make_net, net_config, net_config_json


class SingleStepPolicy(nn.Module):
    """chunk = clamp(jump(features, noise, t = 1), -1, 1) with jump(x, t) = x - t * net(x, t, features).

    `jump` is the identity at t = 0 by construction, the boundary condition of consistency distillation. With
    a network trained as a flow, jump(noise, 1) is one Euler step, so a head may start from its teacher's
    weights.
    """

    kind = "single_step"
    reads_every_step = False  # see `protocols.reads_every_step`

    def __init__(
        self,
        env: EnvSpec,
        encoder: ObsEncoder | EncoderStack,
        net: NetConfig,
        obs_steps: int,
        chunk: int,
        execute: int,
    ) -> None:
        super().__init__()
        self.env, self.obs_spec, self.action_spec = env, encoder.spec, env.action
        self.obs_steps, self.chunk, self.execute = obs_steps, chunk, execute
        self._net_config = net
        self.encoder = encoder
        self.net = make_net(net, env.action.dim, chunk, encoder.dim)

    def features(self, obs: Obs) -> Float[Tensor, "b f"]:
        features: Tensor = self.encoder(obs)
        return features

    def jump(
        self, features: Float[Tensor, "b f"], x: Float[Tensor, "b Tp a"], t: Float[Tensor, " b"]
    ) -> Float[Tensor, "b Tp a"]:
        """Action (not clipped) directly from the point x at process time t."""
        out: Tensor = x - t.view(-1, 1, 1) * self.net(x, t, features)
        return out

    def sample(self, obs: Obs, noise: Float[Tensor, "b Tp a"]) -> Float[Tensor, "b Tp a"]:
        return self.sample_from(self.features(obs), noise)

    def sample_from(
        self, features: Float[Tensor, "b f"], noise: Float[Tensor, "b Tp a"]
    ) -> Float[Tensor, "b Tp a"]:
        """`jump` from t = 1, where the factor is 1. The time is shared by all samples, so its embedding is a
        constant of the graph.
        """
        end = torch.ones((), device=noise.device)
        chunk: Tensor = (noise - self.net(noise, end, features)).clamp(-1.0, 1.0)
        return chunk

    def refine(self, obs: Obs, action: Float[Tensor, "b a"]) -> Float[Tensor, "b a"]:
        return action

    def config(self) -> dict[str, Any]:
        return {
            "env": self.env.to_json(),
            "obs_steps": self.obs_steps,
            "chunk": self.chunk,
            "execute": self.execute,
            "net": net_config_json(self._net_config),
            **self.encoder.networks_json(),
            "normalizer": self.encoder.normalizer.config(),
        }

    @classmethod
    def from_config(cls, data: dict[str, Any]) -> SingleStepPolicy:
        env, obs_steps = EnvSpec.from_json(data["env"]), int(data["obs_steps"])
        networks = ImageEncoderConfig(**data["image"]), PointEncoderConfig(**data.get("points", {}))
        encoders = [
            ObsEncoder(env.obs, obs_steps, Normalizer.from_config(data["normalizer"], env.obs), *networks)
            for _ in range(int(data.get("encoders", 1)))  # a teacher with learned encoders has several
        ]
        encoder = encoders[0] if len(encoders) == 1 else EncoderStack(encoders)
        return cls(env, encoder, net_config(data["net"]), obs_steps, int(data["chunk"]), int(data["execute"]))
