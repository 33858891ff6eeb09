"""Diffusion: DDPM training (Ho et al. 2020) and DDIM sampling (Song et al. 2021, eq. 12 and 16) on an
explicit grid.

The table of cumulative alphas is computed by `diffusers` when a policy is created and stored in its
checkpoint, so a robot does not need `diffusers`. The grid is "trailing": K = 10 of 100 training steps starts
at step 99, at pure noise. "leading", the default of `diffusers`, starts at step 90; imported policies may
need it.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn

from policies.base.process import (
    DenoisingTransitions,
    Net,
    ProcessConfig,
    check_steps,
    config_json,
    per_sample,
)
from robo_rl.core.errors import ConfigError, MissingDependencyError, UnknownNameError
from robo_rl.core.packages import pip_install
from robo_rl.core.settings import check_settings, one_of, setting
from robo_rl.core.shapes import Float, Int

PREDICTIONS = ("epsilon", "sample", "v_prediction")


@dataclass
class DiffusionConfig(ProcessConfig):
    """Settings of a diffusion process.

    prediction=epsilon is Diffusion Policy's. prediction=sample (the clean chunk) needs far fewer updates,
    above all with an MLP (Push-T, 2,000 updates: coverage 0.76 against 0.27).
    """

    name: str = "diffusion"
    steps: int = setting(10, "transitions when sampling (K)")
    train_steps: int = setting(100, "noise levels in training")
    schedule: str = setting("squaredcos_cap_v2", "noise schedule: squaredcos_cap_v2, linear or scaled_linear")
    prediction: str = setting("sample", "network output: sample (the clean chunk), epsilon or v_prediction")
    clip: float = setting(1.0, "bound of the predicted clean chunk; inf: no bound")
    spacing: str = one_of("trailing", "leading", help="grid of sampling: trailing starts at pure noise")


class Diffusion(nn.Module):
    """Diffusion process of this module. Samples are NaN until `build` or a checkpoint fills the table."""

    Config = DiffusionConfig
    alphas_cumprod: Tensor  # (train_steps,), alpha_bar of Ho et al.

    def __init__(self, config: DiffusionConfig) -> None:
        super().__init__()
        if config.prediction not in PREDICTIONS:
            raise UnknownNameError("prediction of a diffusion process", config.prediction, PREDICTIONS)
        if config.clip <= 0.0:
            raise ConfigError(f"Diffusion clip must be positive, found {config.clip}.")
        check_settings(config, "process.")
        self.steps = check_steps(config.steps, config.train_steps)
        self._config = config
        self.register_buffer("alphas_cumprod", torch.full((config.train_steps,), torch.nan))

    @classmethod
    def build(cls, config: DiffusionConfig) -> Diffusion:
        """Process with a table from diffusers. Raises MissingDependencyError if that is not installed."""
        process = cls(config)
        process.alphas_cumprod.copy_(training_table(config))
        return process

    def config(self) -> dict[str, Any]:
        return config_json(self._config)

    def grid(self, steps: int) -> Int[Tensor, " K"]:
        """Training steps of the K transitions, descending; trailing: from train_steps - 1, leading: to 0."""
        total = self._config.train_steps
        check_steps(steps, total)
        k = torch.arange(steps, device=self.alphas_cumprod.device)
        if self._config.spacing == "leading":
            return (steps - 1 - k) * (total // steps)
        return (total - k * (total / steps)).round().long() - 1

    def transitions(
        self, steps: int, level: float = 0.0, device: torch.device | None = None
    ) -> DenoisingTransitions:
        """DDIM steps with eta = level between grid points; after the last one alpha_bar is 1.

        mean = sqrt(alpha') clamp(x0) + sqrt(1 - alpha' - std^2) eps, where eps is the network's own estimate
        and not recomputed from the clamped x0 (as in diffusers).
        """
        grid = self.grid(steps)
        alpha = self.alphas_cumprod[grid]
        following = torch.cat([alpha[1:], alpha.new_ones(1)])
        std = level * ((1.0 - following) / (1.0 - alpha) * (1.0 - alpha / following)).sqrt()
        toward = (1.0 - following - std.square()).clamp(min=0.0).sqrt()
        (clean_x, clean_out), (noise_x, noise_out) = _estimates(self._config.prediction, alpha)
        return DenoisingTransitions(
            times=grid / self._config.train_steps,
            mean_x=toward * noise_x,
            mean_out=toward * noise_out,
            std=std,
            clean=following.sqrt(),
            clean_x=clean_x,
            clean_out=clean_out,
            clip=self._config.clip,
        )

    def bc_loss(
        self,
        net: Net,
        cond: Float[Tensor, "b c"],
        chunk: Float[Tensor, "b Tp a"],
        noise: Float[Tensor, "b Tp a"],
        u: Float[Tensor, " b"],
    ) -> Float[Tensor, " b"]:
        """Mean over the chunk of |net(x_t) - target|^2 at training step floor(u * train_steps)."""
        step = (u * self._config.train_steps).long()
        x, target = self.corrupt(chunk, noise, step)
        return (net(x, step / self._config.train_steps, cond) - target).square().mean(dim=(1, 2))

    def corrupt(
        self, chunk: Float[Tensor, "b Tp a"], noise: Float[Tensor, "b Tp a"], step: Int[Tensor, " b"]
    ) -> tuple[Float[Tensor, "b Tp a"], Float[Tensor, "b Tp a"]]:
        """(x_t at training step `step`, target of the network)."""
        alpha = per_sample(self.alphas_cumprod[step])
        signal, spread = alpha.sqrt(), (1.0 - alpha).sqrt()
        target = {"epsilon": noise, "sample": chunk, "v_prediction": signal * noise - spread * chunk}
        return signal * chunk + spread * noise, target[self._config.prediction]


def _estimates(prediction: str, alpha: Tensor) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Coefficients of (x, out) in the clean chunk and in the noise, for this kind of prediction."""
    signal, spread = alpha.sqrt(), (1.0 - alpha).sqrt()
    zero, one = torch.zeros_like(alpha), torch.ones_like(alpha)
    if prediction == "epsilon":
        return (1.0 / signal, -spread / signal), (zero, one)
    if prediction == "sample":
        return (zero, one), (1.0 / spread, -signal / spread)
    return (signal, -spread), (spread, signal)


def training_table(config: DiffusionConfig) -> Float[Tensor, " t"]:
    """alpha_bar of every training step, from diffusers' DDPM scheduler."""
    try:
        schedulers: Any = import_module("diffusers.schedulers.scheduling_ddpm")
    except ModuleNotFoundError as error:
        raise MissingDependencyError(
            f"Training a diffusion policy needs the package '{error.name}', which is not installed. "
            f"Run: {pip_install('train')}"
        ) from error
    try:
        scheduler = schedulers.DDPMScheduler(
            num_train_timesteps=config.train_steps, beta_schedule=config.schedule
        )
    except NotImplementedError as error:
        raise ConfigError(
            f"Unknown diffusion schedule '{config.schedule}'. Known: linear, scaled_linear, "
            "squaredcos_cap_v2."
        ) from error
    table: Tensor = scheduler.alphas_cumprod.float()
    return table
