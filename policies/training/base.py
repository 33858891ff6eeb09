"""Base training: behaviour cloning of a generative policy, with exact resume.

One update is an AdamW step on the mean of `policy.bc_loss` with warm-up, a cosine learning rate and a clipped
gradient norm, followed by one step of the weights' moving average, which is the resulting policy. With
policy.moment_steps the first updates train moment tokens alone, and this begins after them; see `moments`.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn

from policies.base.generative import GenerativePolicy
from policies.checkpoint import load_weights
from policies.training.batches import ALONE, Draws, WindowSource, draws
from policies.training.data_parallel import averaged_loss, share_state
from policies.training.joint import JointVla
from policies.training.moments import moment_logits, moment_loss, moment_steps, views
from policies.vla.policy import VlaPolicy
from policies.vla.tiny import TinyBackbone
from robo_rl.core.errors import CheckpointError, ConfigError, DivergedError
from robo_rl.core.protocols import Logger, Obs
from robo_rl.core.settings import check_settings, setting
from robo_rl.core.shapes import Float
from robo_rl.core.text.instruction import INSTRUCTION
from robo_rl.core.text.setting_changes import change_words, setting_changes
from robo_rl.nets.optim.ema import ema_decay, ema_update
from robo_rl.nets.optim.graphs import GraphCache, update_graphs
from robo_rl.nets.ranks import Ranks

BasePolicy = TypeVar("BasePolicy", bound=GenerativePolicy | VlaPolicy | JointVla)
# Settings that may change when a training is resumed, without changing its result.
FREE_SETTINGS = frozenset({"log_every", "checkpoint_every", "keep_checkpoints"})


@dataclass
class BaseTrainConfig:
    """Recipe of Diffusion Policy, with a learning rate for small networks. Steps are updates."""

    steps: int = setting(3000, "gradient steps", at_least=1)
    batch_size: int = setting(256, "windows per step", at_least=1)
    lr: float = setting(1e-3, "peak learning rate of AdamW", above=0.0)
    weight_decay: float = setting(1e-6, "weight decay of AdamW", at_least=0.0)
    beta1: float = setting(0.9, "decay of AdamW's first moment", at_least=0.0, below=1.0)
    beta2: float = setting(0.99, "decay of AdamW's second moment", at_least=0.0, below=1.0)
    warmup_steps: int = setting(
        100, "steps in which the learning rate rises linearly, at most a tenth of steps", at_least=0
    )
    final_lr: float = setting(0.01, "fraction of lr at the last step", at_least=0.0, at_most=1.0)
    grad_clip: float = setting(1.0, "bound on the gradient's norm; 0: no bound", at_least=0.0)
    ema_power: float = setting(
        0.75, "exponent of the growing decay of the weights' moving average", at_least=0.0
    )
    ema_max: float = setting(
        0.9999, "largest decay of the weights' moving average", at_least=0.0, at_most=1.0
    )
    seed: int = setting(0, "seed of weights, batches and noise", at_least=0)
    log_every: int = setting(100, "steps between two lines of metrics.jsonl", at_least=1)
    checkpoint_every: int = setting(1000, "steps between two checkpoints; 0: only at the end", at_least=0)
    keep_checkpoints: int = setting(2, "number of newest checkpoints to keep", at_least=1)


def learning_rate(step: int, config: BaseTrainConfig, first: int = 0) -> float:
    """Learning rate at a step: linear warm-up over `warmup_steps`, at most a tenth of the steps, then a half
    cosine to final_lr * lr at `steps`. Before `first`, where the warm-up begins, it is lr.
    """
    if step < first:
        return config.lr
    step, steps = step - first, config.steps - first
    warmup = min(config.warmup_steps, steps // 10)
    if step < warmup:
        return config.lr * (step + 1) / warmup
    done = (step - warmup) / max(1, steps - warmup)
    cosine = 0.5 * (1.0 + math.cos(math.pi * min(done, 1.0)))
    return config.lr * (config.final_lr + (1.0 - config.final_lr) * cosine)


class BaseTrainer(Generic[BasePolicy]):
    """Training of one policy, update by update; `result` is the moving average.

    Weights, average, the optimiser's moments and the step are the entire state: batches, noise and learning
    rates are functions of (seed, step). Raises ConfigError for invalid settings.

    On a GPU the gradient and the optimiser's step of a small policy are captured as one CUDA graph: launching
    them one by one takes longer than computing them. Pretrained backbones are not captured.

    ranks: with several, each rank has a trainer for its shard of every batch, and `share` is called by all of
    them before the first update. The weights are equal on all ranks; the average is kept by rank 0.
    """

    def __init__(
        self,
        policy: BasePolicy,
        data: WindowSource,
        config: BaseTrainConfig,
        logger: Logger | None = None,
        ranks: Ranks = ALONE,
    ) -> None:
        check_settings(config)
        _check_shards(config, ranks)
        self._first = moment_steps(policy, config.steps, ranks)  # update with which imitation begins
        self.config, self._data, self._logger, self._ranks = config, data, logger, ranks
        self._device = next(policy.parameters()).device
        self.policy: BasePolicy = policy
        self.average: BasePolicy = copy.deepcopy(policy)
        self.average.requires_grad_(False)
        self.optimizer = make_optimizer(policy, config, self._device)
        self._loss: nn.Module = _Loss(policy)
        self.step = 0  # number of updates
        self._batches: Iterator[tuple[Obs, Tensor]] | None = None
        self._graphs, self._inputs = self._new_graphs(), list[Tensor]()
        policy.train()

    @property
    def done(self) -> bool:
        return self.step >= self.config.steps

    def share(self) -> None:
        """Give rank 0's state to all ranks, which then compute gradients together; alone, do nothing."""
        if self._ranks.count == 1:
            return
        self.step = share_state(self.step, self.optimizer, self._ranks)
        if not self.done:
            obs, action = self._next_batch()
            self._loss = averaged_loss(self._loss, (obs, action, self._draws(action)))
            self._batches = None  # the first update gets its batch again

    def advance(self) -> None:
        """One update. Raises DivergedError if the loss is not finite when it is logged."""
        config = self.config
        loss, norm = self._update(*self._next_batch())
        self.step += 1
        if self.step % config.log_every == 0 or self.done:
            name = "base/moment_loss" if self.step <= self._first else "base/loss"
            rate = learning_rate(self.step - 1, config, self._first)
            shown = self._ranks.mean(loss)
            _report(self.step, {name: shown, "base/grad_norm": norm, "base/lr": rate}, config, self._logger)

    def result(self) -> BasePolicy:
        """The moving average, frozen and in eval mode."""
        self.average.eval()
        return self.average

    def gather(self) -> None:
        """Collect the state on rank 0, if the ranks have parts of it; see `ShardedTrainer`."""

    def state_dict(self) -> dict[str, Any]:
        return {
            "config": asdict(self.config),
            "step": self.step,
            "ranks": self._ranks.count,
            "policy": self.policy.state_dict(),
            "average": self.average.state_dict(),
            "optimizer": self.optimizer.state_dict()["state"],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from `state`. Raises CheckpointError if settings or network differ."""
        _check_same_settings(state["config"], self.config)
        load_weights(self.policy, state["policy"], "The checkpoint")
        load_weights(self.average, state["average"], "The checkpoint")
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": state["optimizer"], "param_groups": groups})
        self.step = int(state["step"])
        self._graphs = self._new_graphs()  # the moments are other tensors now

    def _next_batch(self) -> tuple[Obs, Tensor]:
        config = self.config
        if self._batches is None:
            self._batches = self._data.batches(
                config.batch_size, config.seed, self.step, config.steps, self._device, self._ranks
            )
        return next(self._batches)

    def _draws(self, action: Float[Tensor, "b Tp a"]) -> Draws:
        noises = self.policy.shape.draws if isinstance(self.policy, VlaPolicy | JointVla) else 1
        return draws(self.config.seed, self.step, action, self.policy.cameras, self._ranks, noises)

    def _new_graphs(self) -> GraphCache:
        small = isinstance(self.policy, GenerativePolicy) or isinstance(self.policy.backbone, TinyBackbone)
        captured = small and self._ranks.count == 1
        return update_graphs(self._device, "auto" if captured else "off", ())

    def _update(self, obs: Obs, action: Float[Tensor, "b Tp a"]) -> tuple[Tensor, Tensor]:
        """One optimiser step. Returns the loss and the gradient norm before clipping, on the device."""
        config, draw = self.config, self._draws(action)
        for group in self.optimizer.param_groups:
            _set_rate(group, learning_rate(self.step, config, self._first))
        if self.step < self._first:
            return self._contrast(obs)
        if 0 < self._first == self.step:  # averages of the other loss's gradients
            self.optimizer.state.clear()
        if self._graphs.off:
            loss, norm = self._descend(self._loss(obs, action, draw))
        else:
            loss, norm = self._replayed(obs, action, draw)
        self._follow(ema_decay(self.step - self._first, config.ema_power, config.ema_max))
        return loss, norm

    def _contrast(self, obs: Obs) -> tuple[Tensor, Tensor]:
        """One step of the moment tokens. AdamW changes no other weight, because none has a gradient."""
        policy = self.policy
        assert isinstance(policy, VlaPolicy)
        assert policy.memory is not None
        two = views(self.config.seed, self.step, len(obs[INSTRUCTION]), policy.cameras, self._device)
        loss = moment_loss(moment_logits(policy, obs, two))
        found = self._descend(loss, [policy.memory.tokens])
        self._follow(0.0)
        return found

    def _descend(self, loss: Tensor, inputs: list[Tensor] | None = None) -> tuple[Tensor, Tensor]:
        """Gradient, clipping and the optimiser's step. Returns the loss and the norm before clipping.

        inputs: tensors that get a gradient; None: all weights of the loss.
        """
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward(inputs=inputs)
        norm = self._clip()
        self.optimizer.step()
        return loss.detach(), norm

    def _replayed(self, obs: Obs, action: Float[Tensor, "b Tp a"], draw: Draws) -> tuple[Tensor, Tensor]:
        """The same as a graph, which reads its inputs where the first batch was."""
        given = [*obs.values(), action, draw.noise, draw.u, draw.crop]
        if not self._inputs:
            self._inputs = [value.clone() for value in given]
        for kept, value in zip(self._inputs, given, strict=True):
            kept.copy_(value)
        seen = dict(zip(obs, self._inputs, strict=False))
        chunk, *drawn = self._inputs[len(seen) :]
        return self._graphs.run("update", lambda: self._descend(self._loss(seen, chunk, Draws(*drawn))))

    def _clip(self) -> Tensor:
        """Bound the gradient's norm; returns the norm before."""
        return nn.utils.clip_grad_norm_(self.policy.parameters(), self.config.grad_clip or math.inf)

    def _follow(self, decay: float) -> None:
        """One step of the moving average, which rank 0 keeps."""
        if self._ranks.leads:
            ema_update(self.average, self.policy, decay)


class _Loss(nn.Module):
    """Mean loss of a batch as a module, whose gradients DistributedDataParallel can average."""

    def __init__(self, policy: GenerativePolicy | VlaPolicy | JointVla) -> None:
        super().__init__()
        self.policy = policy

    def forward(self, obs: Obs, action: Float[Tensor, "b Tp a"], draw: Draws) -> Tensor:
        return self.policy.bc_loss(obs, action, draw.noise, draw.u, draw.crop).mean()


def train_base(
    policy: BasePolicy,
    data: WindowSource,
    config: BaseTrainConfig,
    *,
    logger: Logger | None = None,
    on_step: Callable[[int], None] | None = None,
) -> BasePolicy:
    """Train `policy` in place; returns its moving average, frozen and in eval mode.

    on_step(updates so far) is called after every update (progress bars). Raises as `BaseTrainer` does.
    """
    trainer = BaseTrainer(policy, data, config, logger)
    while not trainer.done:
        trainer.advance()
        if on_step is not None:
            on_step(trainer.step)
    return trainer.result()


def make_optimizer(policy: nn.Module, config: BaseTrainConfig, device: torch.device) -> torch.optim.AdamW:
    """AdamW over the parameters of `policy` that are trained."""
    parameters = [parameter for parameter in policy.parameters() if parameter.requires_grad]
    betas, fused, on_gpu = (config.beta1, config.beta2), device.type in ("cpu", "cuda"), device.type == "cuda"
    # A graph reads the rate from the device.
    rate = torch.tensor(config.lr, device=device) if on_gpu else config.lr
    return torch.optim.AdamW(
        parameters, lr=rate, betas=betas, weight_decay=config.weight_decay, fused=fused, capturable=on_gpu
    )


def _set_rate(group: dict[str, Any], rate: float) -> None:
    if isinstance(group["lr"], Tensor):
        group["lr"].fill_(rate)
    else:
        group["lr"] = rate


def _report(
    step: int, values: dict[str, float | Tensor], config: BaseTrainConfig, logger: Logger | None
) -> None:
    """Log the values, of which the first is the loss."""
    loss = float(next(iter(values.values())))
    if not math.isfinite(loss):
        raise DivergedError(
            f"The training loss is {loss} at update {step}.",
            f"Lower lr={config.lr}, or look for NaN in the data (robo-rl data validate).",
        )
    if logger is not None:
        logger.log(step, values)


def _check_shards(config: BaseTrainConfig, ranks: Ranks) -> None:
    if config.batch_size % ranks.count:
        raise ConfigError(
            f"batch_size={config.batch_size} cannot be divided equally between {ranks.count} processes. Set "
            f"it to a multiple of {ranks.count}, or processes to a divisor of it."
        )


def _check_same_settings(saved: Mapping[str, Any], now: BaseTrainConfig) -> None:
    if changes := setting_changes(now, saved, FREE_SETTINGS):
        before, present = change_words(changes)
        raise CheckpointError(
            f"The checkpoint was trained with {before} and cannot be continued with {present}. Resume "
            "with the same settings, or start in a new folder."
        )
