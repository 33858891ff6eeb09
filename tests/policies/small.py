"""Policies small enough to export in a second, one for each special property."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from policies.base.diffusion import Diffusion, DiffusionConfig
from policies.base.flow import Flow, FlowConfig
from policies.base.generative import GenerativeConfig, GenerativePolicy
from robo_rl.core.protocols import Obs
from robo_rl.core.spec import ActionSpec, ArraySpec, EnvSpec, sense_of
from robo_rl.data.normalizer import Normalizer
from robo_rl.nets.denoiser import MlpDenoiserConfig
from robo_rl.nets.image_encoder import ImageEncoderConfig
from robo_rl.nets.registry import NetConfig
from tests.eval.fakes import LIMIT

ENV = EnvSpec(
    "fake/button",
    {"state": ArraySpec((2,), unit="SI")},
    ActionSpec((-LIMIT,), (LIMIT,), "N"),
    max_episode_steps=8,
    control_hz=50.0,
)


def flow_policy(
    env: EnvSpec = ENV, steps: int = 2, net: NetConfig | None = None, image: ImageEncoderConfig | None = None
) -> GenerativePolicy:
    """A real base policy: MLP by default, flow, K steps, history 2, chunks of 4 of which 2 are executed."""
    config = _config(net or MlpDenoiserConfig(width=16, depth=1), image or ImageEncoderConfig())
    return GenerativePolicy(env, _normalizer(env), config, Flow(FlowConfig(steps=steps))).eval()


def diffusion_policy(net: NetConfig, steps: int = 2) -> GenerativePolicy:
    """The same under DDIM, with a linear table of alpha_bar in place of the one from diffusers."""
    process = Diffusion(DiffusionConfig(steps=steps, train_steps=10, prediction="v_prediction"))
    process.alphas_cumprod.copy_(torch.linspace(0.95, 0.05, 10))
    return GenerativePolicy(ENV, _normalizer(ENV), _config(net, ImageEncoderConfig()), process).eval()


def _config(net: NetConfig, image: ImageEncoderConfig) -> GenerativeConfig:
    return GenerativeConfig(obs_steps=2, chunk=4, execute=2, net=net, image=image)


def _normalizer(env: EnvSpec) -> Normalizer:
    torch.manual_seed(0)
    states = {
        key: torch.rand(64, *spec.shape) * 3.0 + 1.0
        for key, spec in env.obs.items()
        if sense_of(key, spec) == "state"
    }
    return Normalizer.fit(states)


class Small(nn.Module):
    """chunk = tanh(linear(newest state) + noise), with unequal action limits."""

    kind = "small"

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.obs_spec = {"state": ArraySpec((3,), unit="m"), "image.top": ArraySpec((4, 4, 3), "uint8")}
        self.action_spec = ActionSpec((-1.0, 0.0), (3.0, 0.5), "rad")
        self.obs_steps, self.chunk, self.execute = 1, 4, 2
        self.linear = nn.Linear(3, 2)

    def config(self) -> dict[str, object]:
        return {}

    def features(self, obs: Obs) -> Tensor:
        bright = obs["image.top"].float().mean(dim=(1, 2, 3, 4)) / 255.0
        return torch.cat([obs["state"][:, -1], bright.unsqueeze(1)], dim=-1)

    def sample(self, obs: Obs, noise: Tensor) -> Tensor:
        return self.sample_from(self.features(obs), noise)

    def sample_from(self, features: Tensor, noise: Tensor) -> Tensor:
        return torch.tanh(self.linear(features[:, :3]) + features[:, 3:]).unsqueeze(1) * noise.tanh()

    def refine(self, obs: Obs, action: Tensor) -> Tensor:
        return action


class SmallResidual(Small):
    """Corrects every action by a small network of its own, zero-initialised like a residual."""

    def __init__(self, zero: bool = False) -> None:
        super().__init__()
        self.residual = nn.Linear(5, 2)
        if zero:
            nn.init.zeros_(self.residual.weight)
            nn.init.zeros_(self.residual.bias)

    def refine(self, obs: Obs, action: Tensor) -> Tensor:
        step = torch.tanh(self.residual(torch.cat([obs["state"][:, -1], action], dim=-1)))
        return (action + 0.2 * step).clamp(-1.0, 1.0)


SMALL_ENV = EnvSpec(
    "fake/small", Small().obs_spec, Small().action_spec, max_episode_steps=10, control_hz=20.0
)


class Untraceable(Small):
    """Branches on the value of a tensor, which a graph cannot represent."""

    def sample(self, obs: Obs, noise: Tensor) -> Tensor:
        return noise if noise.sum() > 0 else -noise


class Unfaithful(Small):
    """Computes a different function in the graph than in torch, which the parity check must detect."""

    def sample(self, obs: Obs, noise: Tensor) -> Tensor:
        chunk = super().sample(obs, noise)
        return chunk + 1e-3 if torch.compiler.is_compiling() else chunk
