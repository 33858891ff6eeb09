"""Generative base policies: observation encoder x network x process."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from policies.base.chain import (
    ChainSampler,
    DenoisingChain,
    Explore,
    deterministic_path,
    deterministic_sample,
    log_prob,
    sample_chain,
)
from policies.base.flow import FlowConfig
from policies.base.process import Process, ProcessConfig, load_process, make_process, process_config
from policies.observation import Crop, ObsEncoder
from robo_rl.core.errors import ConfigError
from robo_rl.core.protocols import Obs
from robo_rl.core.shapes import Float
from robo_rl.core.spec import EnvSpec
from robo_rl.data.normalizer import Normalizer
from robo_rl.nets.denoiser import MlpDenoiserConfig
from robo_rl.nets.image_encoder import ImageEncoderConfig
from robo_rl.nets.point_encoder import PointEncoderConfig
from robo_rl.nets.registry import NetConfig, make_net, net_config, net_config_json


@dataclass
class GenerativeConfig:
    """Horizons (obs_steps To, chunk Tp, execute Ta), network and process of a policy."""

    obs_steps: int = 1
    chunk: int = 8
    execute: int = 8
    net: NetConfig = field(default_factory=MlpDenoiserConfig)
    process: ProcessConfig = field(default_factory=FlowConfig)
    image: ImageEncoderConfig = field(default_factory=ImageEncoderConfig)
    points: PointEncoderConfig = field(default_factory=PointEncoderConfig)


class GenerativePolicy(nn.Module):
    """chunk = endpoint of the process from the noise, given the encoded observation. A
    `protocols.ChunkPolicy`.

    Actions are in [-1, 1], the limits of `action_spec`. Nothing is drawn inside: noise, crops and times of
    the loss are arguments. Gradients are the caller's choice; act under torch.no_grad().
    """

    kind = "generative"
    reads_every_step = False  # see `protocols.reads_every_step`

    def __init__(
        self, env: EnvSpec, normalizer: Normalizer, config: GenerativeConfig, process: Process
    ) -> None:
        super().__init__()
        if config.execute > config.chunk >= 1:
            raise ConfigError(
                f"execute={config.execute} exceeds chunk={config.chunk}, the number of predicted actions. "
                f"Set execute to at most {config.chunk}, or raise chunk."
            )
        if config.obs_steps < 1 or not 1 <= config.execute <= config.chunk:
            raise ConfigError(
                "A policy needs obs_steps >= 1 and 1 <= execute <= chunk, found "
                f"obs_steps={config.obs_steps}, execute={config.execute}, chunk={config.chunk}."
            )
        self.env, self.action_spec = env, env.action
        self.obs_steps, self.chunk, self.execute = config.obs_steps, config.chunk, config.execute
        self._config = config
        self.encoder = ObsEncoder(env.obs, config.obs_steps, normalizer, config.image, config.points)
        self.obs_spec = self.encoder.spec  # without instructions
        self.net = make_net(config.net, env.action.dim, config.chunk, self.encoder.dim)
        self.process = process

    @classmethod
    def build(cls, env: EnvSpec, normalizer: Normalizer, config: GenerativeConfig) -> GenerativePolicy:
        """Policy with new weights for this environment or dataset."""
        return cls(env, normalizer, config, make_process(config.process))

    @property
    def shape(self) -> GenerativeConfig:
        """Configuration of this policy, with the horizons that it was built with."""
        return self._config

    @property
    def cameras(self) -> int:
        """Number of pictures in an observation; each has a random crop in training."""
        return len(self.encoder.cameras)

    # Acting

    def features(self, obs: Obs, crop: Crop | None = None) -> Float[Tensor, "b f"]:
        """obs (b, To, *shape) -> normalised states and encoded images and points, flattened."""
        features: Tensor = self.encoder(obs, crop)
        return features

    def sample(
        self, obs: Obs, noise: Float[Tensor, "b Tp a"], steps: int | None = None
    ) -> Float[Tensor, "b Tp a"]:
        """Deterministic endpoint of the process in `steps` transitions; None: the configured K."""
        return self.sample_from(self.features(obs), noise, steps)

    def sample_from(
        self, features: Float[Tensor, "b f"], noise: Float[Tensor, "b Tp a"], steps: int | None = None
    ) -> Float[Tensor, "b Tp a"]:
        """`sample` from precomputed features."""
        self._check_noise(noise, features.shape[0])
        return deterministic_sample(
            self.process, self.net, features, noise, self.process.steps if steps is None else steps
        )

    def path(
        self, features: Float[Tensor, "b f"], noise: Float[Tensor, "b Tp a"]
    ) -> tuple[list[Float[Tensor, "b Tp a"]], list[float]]:
        """Points of the deterministic path and their process times, from 1 = noise to 0 = action."""
        self._check_noise(noise, features.shape[0])
        times = [*self.process.transitions(self.process.steps).times.tolist(), 0.0]
        return deterministic_path(self.process, self.net, features, noise, self.process.steps), times

    def refine(self, obs: Obs, action: Float[Tensor, "b a"]) -> Float[Tensor, "b a"]:
        """The action, unchanged."""
        return action

    # Learning

    def bc_loss(
        self,
        obs: Obs,
        chunk: Float[Tensor, "b Tp a"],
        noise: Float[Tensor, "b Tp a"],
        u: Float[Tensor, " b"],
        crop: Crop | None = None,
    ) -> Float[Tensor, " b"]:
        """Behaviour-cloning loss of each sample. chunk in [-1, 1], noise standard normal, u in [0, 1)."""
        return self.loss_from(self.features(obs, crop), chunk, noise, u)

    def loss_from(
        self,
        features: Float[Tensor, "b f"],
        chunk: Float[Tensor, "b Tp a"],
        noise: Float[Tensor, "b Tp a"],
        u: Float[Tensor, " b"],
    ) -> Float[Tensor, " b"]:
        """`bc_loss` from precomputed features."""
        return self.process.bc_loss(self.net, features, chunk, noise, u)

    def sample_chain(
        self,
        obs: Obs,
        noise: Float[Tensor, "b Tp a"],
        step_noise: Float[Tensor, "b K Tp a"],
        explore: Explore,
    ) -> DenoisingChain:
        """Stochastic chain with the log-probabilities of its transitions; see `policies.base.chain`."""
        self._check_noise(noise, len(step_noise))
        return sample_chain(self.process, self.net, self.features(obs), noise, step_noise, explore)

    def log_prob(self, obs: Obs, chain: DenoisingChain) -> Float[Tensor, "b S Tp a"]:
        """Log-probabilities of the chain under the current weights, per element."""
        return log_prob(self.process, self.net, self.features(obs), chain)

    def chain_sampler(self, explore: Explore) -> ChainSampler:
        """Stochastic chains from precomputed features, under the current weights."""
        device = next(self.net.parameters()).device
        return ChainSampler(self.process, self.net, self.process.steps, explore, device)

    # Checkpoint

    def config(self) -> dict[str, Any]:
        """Arguments from which `from_config` builds an equal policy; tables and statistics are part of the
        weights.
        """
        return {
            "env": self.env.to_json(),
            "obs_steps": self.obs_steps,
            "chunk": self.chunk,
            "execute": self.execute,
            "net": net_config_json(self._config.net),
            "process": self.process.config(),
            **self.encoder.networks_json(),
            "normalizer": self.encoder.normalizer.config(),
        }

    @classmethod
    def from_config(cls, data: dict[str, Any]) -> GenerativePolicy:
        config = GenerativeConfig(
            obs_steps=int(data["obs_steps"]),
            chunk=int(data["chunk"]),
            execute=int(data["execute"]),
            net=net_config(data["net"]),
            process=process_config(data["process"]),
            image=ImageEncoderConfig(**data["image"]),
            points=PointEncoderConfig(**data.get("points", {})),  # older policies have no such key
        )
        env = EnvSpec.from_json(data["env"])
        normalizer = Normalizer.from_config(data["normalizer"], env.obs)
        return cls(env, normalizer, config, load_process(config.process))

    def _check_noise(self, noise: Tensor, batch: int) -> None:
        if noise.shape != torch.Size([batch, self.chunk, self.action_spec.dim]):
            raise ConfigError(
                f"Noise has shape {tuple(noise.shape)}, expected ({batch}, {self.chunk}, "
                f"{self.action_spec.dim}): one full-length draw per observation, not one vector repeated "
                "over the chunk."
            )
