"""Value learning from video, update by update, with exact resume."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from policies.checkpoint import load_weights
from policies.pretraining.frames import GoalConfig, VideoFrames, pick_frames
from policies.pretraining.value import VideoValue, value_loss
from robo_rl.core.errors import CheckpointError, RoboRLError
from robo_rl.core.protocols import Logger
from robo_rl.core.settings import setting
from robo_rl.core.text.setting_changes import change_words, setting_changes
from robo_rl.nets.optim.ema import ema_update

ADAM_EPS = 3.125e-4  # of the authors' code for pictures
FREE_SETTINGS = frozenset({"log_every", "checkpoint_every"})  # without effect on the result


@dataclass
class VideoValuesConfig(GoalConfig):
    """Value learning from video. Steps are updates."""

    steps: int = setting(10_000, "gradient steps", at_least=1)
    batch_size: int = setting(
        64, "frames per step, each with its next one, a goal and an intention", at_least=1
    )
    lr: float = setting(3e-4, "learning rate of Adam", above=0.0)
    expectile: float = setting(
        0.9, "weight of steps that help the intention; the others have 1 - expectile", above=0.0, below=1.0
    )
    tau: float = setting(0.005, "step of the target network towards the network", above=0.0, at_most=1.0)
    width: int = setting(256, "width of the layers behind the picture encoder", at_least=1)
    seed: int = setting(0, "seed of weights, frames and crops", at_least=0)
    log_every: int = setting(100, "steps between two lines of metrics.jsonl", at_least=1)
    checkpoint_every: int = setting(1000, "steps between two checkpoints; 0: only at the end", at_least=0)


class VideoTrainer:
    """Training of a `VideoValue`, a `Resumable`.

    Weights, target network, moments of Adam and the step are the entire state: frames and crops are functions
    of (seed, step).
    """

    def __init__(
        self,
        value: VideoValue,
        frames: VideoFrames,
        config: VideoValuesConfig,
        logger: Logger | None = None,
        workers: int = 0,
    ) -> None:
        self.value, self.config = value, config
        self.slow = copy.deepcopy(value).requires_grad_(False)
        self.step = 0
        self._frames, self._logger, self._workers = frames, logger, workers
        self._device = next(value.parameters()).device
        self._optimizer = torch.optim.Adam(value.parameters(), lr=config.lr, eps=ADAM_EPS)
        self._batches: Iterator[Tensor] | None = None

    @property
    def done(self) -> bool:
        return self.step >= self.config.steps

    def advance(self) -> None:
        """One update. Raises RoboRLError if the loss is not finite when it is logged."""
        config = self.config
        picks_of = partial(
            pick_frames,
            self._frames.lengths,
            config.batch_size,
            config,
            config.seed,
            instructions=self._frames.instructions,
        )
        if self._batches is None:
            # Without a reference to this trainer, so that the reading processes end with it.
            order = map(picks_of, range(self.step, config.steps))
            self._batches = self._frames.batches(order, self._workers)
        frames, picks = next(self._batches).to(self._device, non_blocking=True), picks_of(self.step)
        crop, at_goal, at_intent = (
            part.to(self._device, non_blocking=True) for part in (picks.crops, picks.at_goal, picks.at_intent)
        )
        words = None if picks.words is None else picks.words.to(self._device, non_blocking=True)
        loss, logs = value_loss(
            self.value, self.slow, frames, crop, at_goal, at_intent, config.gamma, config.expectile, words
        )
        self._optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self._optimizer.step()
        ema_update(self.slow, self.value, 1.0 - config.tau)
        self.step += 1
        if self.step % config.log_every == 0 or self.done:
            self._report(logs)

    def state_dict(self) -> dict[str, Any]:
        return {
            "config": asdict(self.config),
            "step": self.step,
            "value": self.value.state_dict(),
            "slow": self.slow.state_dict(),
            "optimizer": self._optimizer.state_dict()["state"],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from `state`. Raises CheckpointError if settings or networks differ."""
        if changes := setting_changes(self.config, state["config"], FREE_SETTINGS):
            before, present = change_words(changes)
            raise CheckpointError(
                f"The checkpoint was trained with {before} and cannot be continued with {present}. Resume "
                "with the same settings, or start in a new folder."
            )
        load_weights(self.value, state["value"], "The checkpoint")
        load_weights(self.slow, state["slow"], "The checkpoint")
        groups = self._optimizer.state_dict()["param_groups"]
        self._optimizer.load_state_dict({"state": state["optimizer"], "param_groups": groups})
        self.step, self._batches = int(state["step"]), None

    def _report(self, logs: Mapping[str, Tensor]) -> None:
        if not math.isfinite(loss := float(logs["video/loss"])):
            raise RoboRLError(
                f"The training loss is {loss} at update {self.step}. Lower lr={self.config.lr}."
            )
        if self._logger is not None:
            self._logger.log(self.step, logs)
