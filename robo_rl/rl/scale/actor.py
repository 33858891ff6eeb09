"""One actor: collects blocks with the lanes of its own environment. Ray runs it in a process of its own."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from robo_rl.core.errors import RoboRLError
from robo_rl.core.plugins import load_plugins
from robo_rl.core.provenance import versions
from robo_rl.rl.acting import ActingPolicy
from robo_rl.rl.collect import Collector
from robo_rl.rl.off_policy.learner import OffPolicyLearner
from robo_rl.rl.scale.blocks import Block, BlockStore
from robo_rl.rl.scale.schedule import Grant

Weights = dict[str, NDArray[np.float32]]  # part of `OffPolicyLearner.acting_weights` -> its values, flat


@dataclass(frozen=True)
class ActorParts:
    """Objects of an actor. stores: names of the learner's replays, with the collector's stores."""

    collector: Collector
    acting: ActingPolicy
    stores: dict[str, BlockStore]


@dataclass(frozen=True)
class ActorInfo:
    """Where an actor runs, and with what."""

    host: str
    pid: int
    versions: dict[str, str]


@dataclass(frozen=True)
class Failure:
    """An error that a user can cause, as a sentence: exceptions with arguments of their own do not travel."""

    sentence: str
    exit_code: int


class RolloutActor:
    """Collects blocks on request. build(slot, incarnation): makes its environment, collector and networks."""

    def __init__(self, build: Callable[[int, int], ActorParts], slot: int, incarnation: int) -> None:
        self._build, self._slot, self._incarnation = build, slot, incarnation
        self._parts: ActorParts | None = None
        self._version: int | None = None
        self._idle_since_s: float | None = None

    def about(self) -> ActorInfo | Failure:
        """Build everything, and return where it runs."""
        torch.set_num_threads(1)
        try:
            load_plugins()  # registers a user's environments in this process, too
            self._parts = self._build(self._slot, self._incarnation)
        except RoboRLError as error:
            return Failure(str(error), error.exit_code)
        return ActorInfo(platform.node(), os.getpid(), versions())

    def collect(self, grant: Grant, weights: Weights) -> Block | Failure:
        """Collect one block with these weights."""
        try:
            return self._collect(grant, weights)
        except RoboRLError as error:
            return Failure(str(error), error.exit_code)

    def _collect(self, grant: Grant, weights: Weights) -> Block:
        assert self._parts is not None  # `about` was called first
        began_s, cpu_s = time.perf_counter(), time.process_time()
        waited_s = 0.0 if self._idle_since_s is None else began_s - self._idle_since_s
        collector, acting = self._parts.collector, self._parts.acting
        if grant.version != self._version:
            load_weights(acting.learner, weights)
            self._version = grant.version
        before, episodes = collector.env_steps, []
        for _ in range(grant.steps):
            act = acting.policy(grant.phase, grant.env_steps)
            episodes += collector.collect(grant.phase, act, collector.writer.store, None)
        self._idle_since_s = time.perf_counter()
        return Block(
            incarnation=self._incarnation,
            version=grant.version,
            env_steps=collector.env_steps - before,
            decisions={name: store.take() for name, store in self._parts.stores.items()},
            episodes=episodes,
            largest_reward=collector.reward.largest,
            busy_s=self._idle_since_s - began_s,
            waited_s=waited_s,
            cpu_s=time.process_time() - cpu_s,
        )


def weights_of(learner: OffPolicyLearner) -> Weights:
    """The weights that the learner explores with."""
    return {
        name: np.concatenate([value.detach().float().cpu().numpy().ravel() for value in state.values()])
        for name, state in learner.acting_weights().items()
    }


def load_weights(learner: OffPolicyLearner, weights: Weights) -> None:
    """Make the learner explore with those of `weights_of`."""
    loaded = {}
    for name, state in learner.acting_weights().items():
        flat = torch.tensor(weights[name])  # a copy: an object store's arrays are read-only
        parts = flat.split([value.numel() for value in state.values()])
        loaded[name] = {
            key: part.view_as(value) for (key, value), part in zip(state.items(), parts, strict=True)
        }
    learner.load_weights(loaded)
