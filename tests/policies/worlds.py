"""The small environments, datasets and policies that the tests of base policies share."""

from __future__ import annotations

import torch

from policies.base.diffusion import DiffusionConfig
from policies.base.flow import FlowConfig
from policies.base.generative import GenerativeConfig, GenerativePolicy
from policies.base.process import ProcessConfig
from policies.training.batches import TensorWindows
from robo_rl.core.spec import ActionSpec, ArraySpec, EnvSpec
from robo_rl.data.normalizer import Normalizer
from robo_rl.nets.denoiser import MlpDenoiserConfig
from robo_rl.nets.image_encoder import ImageEncoderConfig
from robo_rl.nets.registry import NetConfig
from robo_rl.nets.transformer import TransformerConfig
from robo_rl.nets.unet1d import Unet1dConfig

PROCESSES: dict[str, ProcessConfig] = {
    "flow": FlowConfig(steps=4, prediction="sample"),
    "flow-velocity": FlowConfig(steps=4, prediction="velocity"),
    "flow-preconditioned": FlowConfig(steps=4, prediction="preconditioned"),
    "diffusion": DiffusionConfig(steps=5, prediction="epsilon"),
    "diffusion-sample": DiffusionConfig(steps=5, prediction="sample"),
    "diffusion-v": DiffusionConfig(steps=5, prediction="v_prediction"),
}
NETS: dict[str, NetConfig] = {
    "mlp": MlpDenoiserConfig(width=32, depth=2),
    "unet1d": Unet1dConfig(widths=[16, 32], time_dim=16),
    "transformer": TransformerConfig(width=16, depth=1, heads=2),
}
ENV = EnvSpec(
    "fake/reach",
    {"state": ArraySpec((3,), unit="m"), "goal": ArraySpec((2,), unit="m")},
    ActionSpec((-2.0, 0.0), (2.0, 10.0), "N"),
    max_episode_steps=20,
    control_hz=10.0,
)
CAMERA_ENV = EnvSpec(
    "fake/look",
    {"state": ArraySpec((3,)), "image.top": ArraySpec((12, 12, 3), "uint8")},
    ActionSpec((-1.0, -1.0), (1.0, 1.0)),
    max_episode_steps=20,
    control_hz=10.0,
)


def observations(env: EnvSpec, n: int, obs_steps: int, seed: int = 0) -> dict[str, torch.Tensor]:
    """Random (n, To, *shape)."""
    rng = torch.Generator().manual_seed(seed)
    return {
        key: torch.randint(0, 256, (n, obs_steps, *array.shape), dtype=torch.uint8, generator=rng)
        if array.dtype == "uint8"
        else torch.randn(n, obs_steps, *array.shape, generator=rng) * 3.0 + 1.0
        for key, array in env.obs.items()
    }


def policy_of(process: str = "flow", net: str = "mlp", env: EnvSpec = ENV, seed: int = 0) -> GenerativePolicy:
    """To = 2, Tp = 8, Ta = 4; every weight random, also those that start at zero."""
    torch.manual_seed(seed)
    data = {key: value[:, 0] for key, value in observations(env, 50, 1).items() if value.dtype != torch.uint8}
    config = GenerativeConfig(
        obs_steps=2,
        chunk=8,
        execute=4,
        net=NETS[net],
        process=PROCESSES[process],
        image=ImageEncoderConfig(widths=[8], features=6, keypoints=3),
    )
    policy = GenerativePolicy.build(env, Normalizer.fit(data), config)
    for parameter in policy.net.parameters():
        torch.nn.init.normal_(parameter, std=0.1)
    return policy


def windows_of(env: EnvSpec, n: int, obs_steps: int = 2, chunk: int = 8) -> TensorWindows:
    """Actions are a smooth function of the newest state, inside [-1, 1]."""
    obs = observations(env, n, obs_steps)
    phase = obs["state"][:, -1:, :1] + torch.arange(chunk).view(1, -1, 1) * 0.3
    return TensorWindows(obs, torch.cat([phase.sin(), phase.cos()], dim=-1) * 0.8)
