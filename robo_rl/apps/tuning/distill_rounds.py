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
from policies.imported.diffusion import ImportedDiffusionPolicy
from policies.observation import EncoderStack
from policies.registry import SavedPolicy
from policies.tuned.best_of import BestOfPolicy
from policies.tuned.direct import DirectPolicy
from policies.tuned.fine_tuned import corrects_steps, feature_encoders
from policies.tuned.one_step import OneStepPolicy
from policies.tuned.residual import ResidualPolicy
from policies.tuned.single_step import SingleStepPolicy
from policies.tuned.steered import SteeredPolicy
from policies.vla.packed import PackedPolicy, has_prefix
from policies.vla.policy import VlaPolicy
from policies.vla.single_step import SingleStepExpert, with_expert
from robo_rl.apps.tuning.maps import ignores_noise
from robo_rl.conf.distill import DistillVerb
from robo_rl.core.conditioning import memory_shape
from robo_rl.core.errors import ConfigError
from robo_rl.core.protocols import Logger, VecEnv
from robo_rl.core.seeding import derive_seed
from robo_rl.core.text.counts import counted
from robo_rl.rl.distillation.dagger import DaggerCollector
from robo_rl.rl.distillation.distill import DistillConfig, DistillData, Distiller, SamplingPath
from sim.registry import longest_instruction

_DATA = ("features", "noise", "chunk", "weight")


@dataclass(frozen=True)
class DistillationResult:
    """The head and its cost, summed over interruptions."""

    head: SavedPolicy
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
        # the teacher with features that hold all that a chunk needs
        self.labelling = (
            PackedPolicy(teacher, longest_instruction(env.spec.name)) if has_prefix(teacher) else teacher
        )
        self.collector = DaggerCollector(
            env, self.labelling, ChunkExecutor, noise, corrects_steps(teacher), config.seed
        )
        self.recipe = DistillConfig(
            **{item.name: getattr(config, item.name) for item in fields(DistillConfig)}
        )
        self.head = new_head(teacher, config, self.labelling)
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

    @property
    def next_steps(self) -> int:
        """Environment steps of the next collection."""
        return self.steps_of(self.round + 1)

    def steps_of(self, round_: int) -> int:
        """Environment steps of the collection before a round; in round 0 the teacher acts alone."""
        return (self.config.round_steps if round_ else self.config.rollout_steps) * self._more

    @property
    def _more(self) -> int:
        """Factor of rollout_steps and round_steps: a teacher that corrects steps gives one label per executed
        chunk; others give one in every state.
        """
        return max(1, self.teacher.execute // 2) if corrects_steps(self.teacher) else 1

    def plan(self) -> str:
        """Sentence on the environment steps of all rounds, without evaluations."""
        first, later, rounds = self.steps_of(0), self.steps_of(1), self.config.rounds
        each = "each of " if rounds > 1 else ""
        then = f", then {later} with the head in {each}{counted(rounds, 'round')}" if rounds else ""
        why = (
            f" These are {self._more} times rollout_steps= and round_steps=: the teacher corrects single "
            "steps and gives one label per executed chunk."
            if self._more > 1
            else ""
        )
        return (
            f"States are collected in {first + rounds * later} environment steps: {first} of the teacher "
            f"alone{then}.{why}"
        )

    def collect(self, on_step: Callable[[int], None] = lambda _: None) -> None:
        """Collect the states of the next round, from the teacher alone or with the student, and start that
        round.
        """
        before = self.distiller
        if before is None:
            gathered = self.collector.collect(self.next_steps, on_step=on_step)
            data = gathered.data
        else:
            student: Any = before.student()
            gathered = self.collector.collect(self.next_steps, student, self.config.student_share, on_step)
            data = before.data + gathered.data
        self.env_steps, self.round = self.env_steps + gathered.env_steps, self.round + 1
        self.distiller = Distiller(self.head, data, self.recipe, self._path())

    def _path(self) -> SamplingPath | None:
        path = sampling_path(self.teacher)
        return self.labelling.path if path and isinstance(self.labelling, PackedPolicy) else path

    def update(self, logger: Logger | None = None) -> None:
        """One update of this round; all rounds share one curve."""
        assert self.distiller is not None
        values = self.distiller.update()
        if logger is not None and (self.distiller.step % self.recipe.log_every == 0 or self.distiller.done):
            logger.log(self.updates, values)

    def result(self) -> DistillationResult:
        assert self.distiller is not None
        head = finished_head(self.distiller.student(), self.teacher)
        return DistillationResult(
            head, self.noise_scale, self.env_steps, len(self.distiller.data), *self._spent()
        )

    def weights(self) -> dict[str, Any]:
        """Weights of the head and of its averages in this round."""
        state = {} if self.distiller is None else self.distiller.state_dict()
        return {name: state[name] for name in ("head", "average", "slow") if name in state}

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
        self.distiller = Distiller(self.head, DistillData(**state["data"]), self.recipe, self._path())
        self.distiller.load_state_dict(state["distiller"])
        self.collector.load_state_dict(state["collector"])
        wall_s, cpu_s = state["spent"]
        self._start_s, self._start_cpu_s = time.monotonic() - wall_s, time.process_time() - cpu_s

    def _spent(self) -> tuple[float, float]:
        """Wall and CPU time so far [s]."""
        return time.monotonic() - self._start_s, time.process_time() - self._start_cpu_s


def sampling_path(teacher: SavedPolicy) -> SamplingPath | None:
    """The teacher's sampling path from noise to action; None for other teachers than generative ones and
    steering of these.
    """
    if isinstance(teacher, SteeredPolicy):
        return None if sampling_path(teacher.base) is None else teacher.path
    return teacher.path if isinstance(teacher, GenerativePolicy | VlaPolicy) else None


def new_head(
    teacher: SavedPolicy, config: DistillVerb, labelling: SavedPolicy | PackedPolicy
) -> SingleStepPolicy | SingleStepExpert:
    """New head with the observations of the teacher's base.

    Its weights follow from the seed; those of a head over a prefix are the action expert's.
    """
    base = generative_base(teacher)
    if isinstance(base, VlaPolicy):
        assert isinstance(labelling, PackedPolicy)
        return SingleStepExpert(base, labelling.layout)
    torch.manual_seed(derive_seed("head", config.seed))
    encoders = [copy.deepcopy(each).requires_grad_(False) for each in feature_encoders(teacher)]
    encoder = encoders[0] if len(encoders) == 1 else EncoderStack(encoders)
    return SingleStepPolicy(base.env, encoder, config.net, teacher.obs_steps, teacher.chunk, teacher.execute)


def finished_head(student: nn.Module, teacher: SavedPolicy) -> SavedPolicy:
    """The trained head as a policy; one over a prefix is the teacher's base with that expert."""
    if isinstance(student, SingleStepPolicy):
        return student
    base = generative_base(teacher)
    assert isinstance(student, SingleStepExpert)
    assert isinstance(base, VlaPolicy)
    return with_expert(base, student, teacher.execute)


def generative_base(policy: nn.Module | SavedPolicy) -> GenerativePolicy | VlaPolicy:
    """Generative policy at the bottom of a stack. Raises ConfigError if there is none."""
    while isinstance(policy, SteeredPolicy | ResidualPolicy | BestOfPolicy | ImportedDiffusionPolicy):
        policy = policy.inner if isinstance(policy, ImportedDiffusionPolicy) else policy.base
    several = isinstance(policy, GenerativePolicy) or (
        isinstance(policy, VlaPolicy) and policy.process.steps > 1
    )
    if not several:
        kind = getattr(policy, "kind", "?")
        if isinstance(policy, VlaPolicy | SingleStepPolicy | DirectPolicy | OneStepPolicy):
            raise ConfigError(f"A policy of kind '{kind}' already decides in a single step.")
        raise ConfigError(
            f"A policy of kind '{kind}' cannot be distilled: a head learns the chunks of a diffusion, flow "
            "or vision-language-action policy, or of one that was fine-tuned from these."
        )
    assert isinstance(policy, GenerativePolicy | VlaPolicy)
    return policy


def check_head(config: DistillVerb, teacher: SavedPolicy) -> None:
    """Raise ConfigError for settings that this teacher does not allow."""
    base = generative_base(teacher)
    if config.consistency > 0.0 and sampling_path(teacher) is None:
        raise ConfigError(
            "consistency > 0 needs the points between noise and action of a teacher that samples in several "
            f"steps, which a policy of kind '{teacher.kind}' does not give. Set consistency=0."
        )
    if not isinstance(base, VlaPolicy):
        return
    if base.shape.head == "tokens":
        raise ConfigError(
            "A policy of action tokens (policy.head=tokens) has no path from noise to action to distil. "
            "Train with policy.head=flow."
        )
    if memory_shape(base) is not None:
        raise ConfigError(
            "A head learns from stored prefixes, and a policy with a memory (policy.memory) cannot be packed "
            "so. Export the policy itself, or train one with policy.memory=0."
        )
    if config.net != type(config)(teacher="", out="").net:
        raise ConfigError(
            "net= is a network over flat features, but the head of a vision-language-action policy is its "
            "action expert. Leave it out."
        )
    if config.consistency > 0.0 and base.shape.process.prediction == "sample":
        raise ConfigError(
            "consistency > 0 needs a network whose jump at time 0 is the identity, which that of "
            "policy.process.prediction=sample is not. Set consistency=0."
        )
