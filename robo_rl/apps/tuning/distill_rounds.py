"""Rounds of distillation: collect, train, let the student act, train again. Resumable at any point.

A saved state holds the labels, the round's training and the collector's random state. A collection starts
with new episodes, so an interrupted one is repeated identically, and the simulator is not part of the state.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import nn

from policies.base.generative import GenerativePolicy
from policies.base.noise import EpisodeNoise
from policies.executor import ChunkExecutor
from policies.observation import EncoderStack
from policies.registry import SavedPolicy
from policies.tuned.fine_tuned import feature_encoders
from policies.tuned.residual import ResidualPolicy
from policies.tuned.single_step import SingleStepPolicy
from policies.tuned.steered import SteeredPolicy
from robo_rl.apps.tuning.compose import ignores_noise
from robo_rl.conf.distill import DistillVerb
from robo_rl.core.errors import ConfigError
from robo_rl.core.protocols import Logger, VecEnv
from robo_rl.core.seeding import derive_seed
from robo_rl.rl.distillation.dagger import DaggerCollector, corrects_steps
from robo_rl.rl.distillation.distill import DistillConfig, DistillData, Distiller, SamplingPath

_DATA = ("features", "noise", "chunk", "weight")


@dataclass(frozen=True)
class DistillationResult:
    """The head and its cost, summed over interruptions."""

    head: SingleStepPolicy
    noise_scale: float
    env_steps: int
    states: int
    wall_s: float
    cpu_s: float


class Rounds:
    """Round 0 learns from the teacher alone; in later rounds the student makes part of the decisions."""

    def __init__(self, config: DistillVerb, teacher: SavedPolicy, noise_scale: float, env: VecEnv) -> None:
        self.config, self.teacher = config, teacher
        # A teacher that ignores its noise has one chunk per state: its head is trained and run at zero noise.
        self.noise_scale = 0.0 if ignores_noise(teacher) else noise_scale
        noise = EpisodeNoise((teacher.chunk, teacher.action_spec.dim), self.noise_scale)
        self.collector = DaggerCollector(
            env, teacher, ChunkExecutor, noise, corrects_steps(teacher), config.seed
        )
        self.recipe = DistillConfig(
            **{item.name: getattr(config, item.name) for item in fields(DistillConfig)}
        )
        self.head = new_head(teacher, config)
        self.round, self.env_steps, self.distiller = -1, 0, None
        self._start_s, self._start_cpu_s = time.monotonic(), time.process_time()

    distiller: Distiller | None  # of this round; None before the first collection

    @property
    def updates(self) -> int:
        """Total updates of all rounds."""
        return 0 if self.distiller is None else self.round * self.config.steps + self.distiller.step

    @property
    def between_rounds(self) -> bool:
        """True before the first and after the last update of a round."""
        return self.distiller is not None and (self.distiller.step == 0 or self.distiller.done)

    @property
    def learns(self) -> bool:
        """True if this round has updates left; otherwise the next step is a collection, or the end."""
        return self.distiller is not None and not self.distiller.done

    @property
    def done(self) -> bool:
        return self.round == self.config.rounds and not self.learns

    def collect(self, on_step: Callable[[int], None] = lambda _: None) -> None:
        """Collect the states of the next round, from the teacher alone or with the student, and start that
        round.
        """
        config, before = self.config, self.distiller
        # A teacher that corrects steps gives one label per executed chunk; others give one in every state.
        more = max(1, self.teacher.execute // 2) if corrects_steps(self.teacher) else 1
        if before is None:
            gathered = self.collector.collect(config.rollout_steps * more, on_step=on_step)
            data = gathered.data
        else:
            student = _single_step(before.student())
            gathered = self.collector.collect(
                config.round_steps * more, student, config.student_share, on_step
            )
            data = before.data + gathered.data
        self.env_steps, self.round = self.env_steps + gathered.env_steps, self.round + 1
        self.distiller = Distiller(self.head, data, self.recipe, sampling_path(self.teacher))

    def update(self, logger: Logger | None = None) -> None:
        """One update of this round; all rounds share one curve."""
        assert self.distiller is not None
        values = self.distiller.update()
        if logger is not None and (self.distiller.step % self.recipe.log_every == 0 or self.distiller.done):
            logger.log(self.updates, values)

    def result(self) -> DistillationResult:
        assert self.distiller is not None
        head = _single_step(self.distiller.student())
        return DistillationResult(
            head, self.noise_scale, self.env_steps, len(self.distiller.data), *self._spent()
        )

    def state_dict(self) -> dict[str, Any]:
        """State to continue from. Nothing needs saving before the first collection is done."""
        assert self.distiller is not None
        return {
            "round": self.round,
            "env_steps": self.env_steps,
            "data": {name: getattr(self.distiller.data, name) for name in _DATA},
            "distiller": self.distiller.state_dict(),
            "collector": self.collector.state_dict(),
            "spent": list(self._spent()),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.round, self.env_steps = int(state["round"]), int(state["env_steps"])
        self.distiller = Distiller(
            self.head, DistillData(**state["data"]), self.recipe, sampling_path(self.teacher)
        )
        self.distiller.load_state_dict(state["distiller"])
        self.collector.load_state_dict(state["collector"])
        wall_s, cpu_s = state["spent"]
        self._start_s, self._start_cpu_s = time.monotonic() - wall_s, time.process_time() - cpu_s

    def _spent(self) -> tuple[float, float]:
        """Wall and CPU time so far [s]."""
        return time.monotonic() - self._start_s, time.process_time() - self._start_cpu_s


def sampling_path(teacher: SavedPolicy) -> SamplingPath | None:
    """The teacher's sampling path from noise to action; None for a residual, and for steering of a
    residual.
    """
    if isinstance(teacher, SteeredPolicy):
        return None if sampling_path(teacher.base) is None else teacher.path
    return teacher.path if isinstance(teacher, GenerativePolicy) else None


def new_head(teacher: SavedPolicy, config: DistillVerb) -> SingleStepPolicy:
    """New head with the observations of the teacher's base; its weights follow from the seed."""
    base = generative_base(teacher)
    torch.manual_seed(derive_seed("head", config.seed))
    encoders = [copy.deepcopy(each).requires_grad_(False) for each in feature_encoders(teacher)]
    encoder = encoders[0] if len(encoders) == 1 else EncoderStack(encoders)
    return SingleStepPolicy(base.env, encoder, config.net, teacher.obs_steps, teacher.chunk, teacher.execute)


def generative_base(policy: nn.Module | SavedPolicy) -> GenerativePolicy:
    """Generative policy at the bottom of a stack. Raises ConfigError if there is none."""
    while isinstance(policy, SteeredPolicy | ResidualPolicy):
        policy = policy.base
    if not isinstance(policy, GenerativePolicy):
        raise ConfigError(
            f"A policy of kind '{getattr(policy, 'kind', '?')}' already decides in a single step."
        )
    return policy


def _single_step(head: nn.Module) -> SingleStepPolicy:
    assert isinstance(head, SingleStepPolicy)
    return head
