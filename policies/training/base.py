"""Base training: behaviour cloning of a generative policy, with exact resume.

One update is AdamW on the mean of `policy.bc_loss` at a cosine learning rate with warm-up, gradients clipped
by norm, then one step of the weights' moving average, which is what acts.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from policies.base.generative import GenerativePolicy
from policies.training.batches import WindowSource, draws
from policies.training.train_state import TrainState, latest_state, write_state
from robo_rl.core.errors import ConfigError, RoboRLError
from robo_rl.core.protocols import Logger
from robo_rl.core.settings import at_least, fraction
from robo_rl.nets.ema import ema_decay, ema_update


@dataclass
class BaseTrainConfig:
    """Diffusion Policy's recipe, with a learning rate for small networks. Steps are updates."""

    steps: int = 3000
    batch_size: int = 256
    lr: float = 1e-3
    weight_decay: float = 1e-6
    beta1: float = 0.9
    beta2: float = 0.99
    warmup_steps: int = 100
    final_lr: float = 0.01  # fraction of lr at the last step
    grad_clip: float = at_least(0.0, 1.0)  # norm bound of the gradient; 0 is none
    ema_power: float = 0.75
    ema_max: float = fraction(0.9999)
    seed: int = 0
    log_every: int = 100
    checkpoint_every: int = 1000  # 0: only at the end
    keep_checkpoints: int = 2


def learning_rate(step: int, config: BaseTrainConfig) -> float:
    """Linear warm-up over `warmup_steps`, then half a cosine down to final_lr * lr at `steps`."""
    if step < config.warmup_steps:
        return config.lr * (step + 1) / config.warmup_steps
    done = (step - config.warmup_steps) / max(1, config.steps - config.warmup_steps)
    cosine = 0.5 * (1.0 + math.cos(math.pi * min(done, 1.0)))
    return config.lr * (config.final_lr + (1.0 - config.final_lr) * cosine)


def train_base(
    policy: GenerativePolicy,
    data: WindowSource,
    config: BaseTrainConfig,
    *,
    folder: Path | None = None,
    logger: Logger | None = None,
    on_step: Callable[[int], None] | None = None,
) -> GenerativePolicy:
    """Train `policy` in place and return its moving average, frozen and in eval mode.

    folder: where checkpoints go; a run with checkpoints there continues after the last one, with the same
    result as if it had never stopped. on_step(updates done) is called after every update (progress bars).
    Ctrl-C writes a checkpoint before it goes on. Raises ConfigError for a dataset that does not fit,
    RoboRLError when the loss is not finite.
    """
    _check(config)
    device = next(policy.parameters()).device
    state = TrainState(
        policy, copy.deepcopy(policy).requires_grad_(False), _optimizer(policy, config, device)
    )
    policy.train()
    if folder is not None:
        latest_state(folder, state, asdict(config))
    try:
        _run(state, data, config, device, folder, logger, on_step)
    except KeyboardInterrupt:
        if folder is not None and state.consistent:
            write_state(folder, state, asdict(config), config.keep_checkpoints)
        raise
    if folder is not None:
        write_state(folder, state, asdict(config), config.keep_checkpoints)
    return state.average.eval()


def _run(
    state: TrainState,
    data: WindowSource,
    config: BaseTrainConfig,
    device: torch.device,
    folder: Path | None,
    logger: Logger | None,
    on_step: Callable[[int], None] | None,
) -> None:
    for obs, action in data.batches(config.batch_size, config.seed, state.step, config.steps, device):
        state.consistent = False
        loss, norm = update(state, obs, action, config)
        state.step += 1
        state.consistent = True
        if state.step % config.log_every == 0 or state.step == config.steps:
            _report(state.step, loss, norm, config, logger)
        if on_step is not None:
            on_step(state.step)
        if folder is not None and config.checkpoint_every and state.step % config.checkpoint_every == 0:
            write_state(folder, state, asdict(config), config.keep_checkpoints)


def update(
    state: TrainState, obs: dict[str, Tensor], action: Tensor, config: BaseTrainConfig
) -> tuple[Tensor, Tensor]:
    """One update. Returns the loss and the gradient norm before clipping, on the device."""
    policy = state.policy
    draw = draws(config.seed, state.step, action, len(policy.encoder.cameras))
    loss = policy.bc_loss(obs, action, draw.noise, draw.u, draw.crop).mean()
    state.optimizer.zero_grad(set_to_none=True)
    loss.backward()
    norm = nn.utils.clip_grad_norm_(policy.parameters(), config.grad_clip or math.inf)
    for group in state.optimizer.param_groups:
        group["lr"] = learning_rate(state.step, config)
    state.optimizer.step()
    ema_update(state.average, policy, ema_decay(state.step, config.ema_power, config.ema_max))
    return loss.detach(), norm


def _optimizer(policy: nn.Module, config: BaseTrainConfig, device: torch.device) -> torch.optim.AdamW:
    parameters = [parameter for parameter in policy.parameters() if parameter.requires_grad]
    betas, fused = (config.beta1, config.beta2), device.type in ("cpu", "cuda")
    return torch.optim.AdamW(
        parameters, lr=config.lr, betas=betas, weight_decay=config.weight_decay, fused=fused
    )


def _report(step: int, loss: Tensor, norm: Tensor, config: BaseTrainConfig, logger: Logger | None) -> None:
    if not math.isfinite(float(loss)):
        raise RoboRLError(
            f"The training loss is {float(loss)} at update {step}. Lower lr={config.lr}, or look for NaN in "
            "the data (robo-rl data validate)."
        )
    if logger is not None:
        values: dict[str, float | Tensor] = {
            "base/loss": loss,
            "base/grad_norm": norm,
            "base/lr": learning_rate(step - 1, config),
        }
        logger.log(step, values)


def _check(config: BaseTrainConfig) -> None:
    if config.steps < 1 or config.batch_size < 1 or config.lr <= 0.0 or config.log_every < 1:
        raise ConfigError(
            "Base training needs steps >= 1, batch_size >= 1, lr > 0 and log_every >= 1, found "
            f"steps={config.steps}, batch_size={config.batch_size}, lr={config.lr}, "
            f"log_every={config.log_every}."
        )
