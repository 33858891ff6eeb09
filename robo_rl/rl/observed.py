"""Inputs of actor and critics from the observations that are collected, and the part that the replay keeps.

Frozen encoder: the base's features, for both. Learned encoder: its features, which change with every update,
while the replay keeps the states and the number of the newest frame of the pictures. True state: numbers that
only the simulator knows, so that pictures are read by the base alone.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor

from robo_rl.core.conditioning import Condition, encode, pooled
from robo_rl.core.lanes import Lanes
from robo_rl.core.protocols import Obs, PictureEncoder, PlanningExecutor, StateReader
from robo_rl.core.shapes import Float
from robo_rl.data.frames import FrameRing


class LaneObservations(NamedTuple):
    """Observation of k lanes. kept: columns of the replay."""

    features: Float[Tensor, "k f"]  # input of actor and critics
    kept: dict[str, Tensor]
    condition: Condition | None = None  # of the base, from which it may plan; None: it encodes by itself


@runtime_checkable
class Observations(Protocol):
    """Observations of all lanes, which the executor stacks.

    reads_pictures: whether `see` reads the pictures of every step.
    """

    reads_pictures: bool

    def start(self, obs: Obs, lanes: Lanes) -> None:
        """The first observations of episodes in these lanes. obs: (n, *shape), all lanes."""
        ...

    def add(self, obs: Obs) -> None:
        """The newest observations of all lanes."""
        ...

    def see(self, lanes: Lanes) -> LaneObservations: ...


class BaseFeatures:
    """Features of the base's own frozen encoder."""

    reads_pictures = True

    def __init__(self, executor: PlanningExecutor) -> None:
        self.executor = executor

    def start(self, obs: Obs, lanes: Lanes) -> None: ...
    def add(self, obs: Obs) -> None: ...

    def see(self, lanes: Lanes) -> LaneObservations:
        condition = encode(self.executor.policy, self.executor.history(lanes))
        features = pooled(condition)
        return LaneObservations(features, {"obs": features}, condition)


class LearnedFeatures:
    """Features of an encoder that learns. Its pictures are stored once each, in the ring of the replay."""

    reads_pictures = True

    def __init__(self, executor: PlanningExecutor, encoder: PictureEncoder, frames: FrameRing) -> None:
        self.executor, self.encoder, self.frames = executor, encoder, frames

    def start(self, obs: Obs, lanes: Lanes) -> None:
        first = torch.ones_like(lanes.ids, dtype=torch.bool)
        self.frames.append(lanes, {key: lanes.read(obs[key]) for key in self.frames.data}, first)

    def add(self, obs: Obs) -> None:
        self.frames.append(self.executor.lanes, obs)

    def see(self, lanes: Lanes) -> LaneObservations:
        history = self.executor.history(lanes)
        states = self.encoder.states(history)
        return LaneObservations(
            self.encoder.encode(states, history), {"obs": states, "frame": lanes.read(self.frames.newest)}
        )


class StateFeatures:
    """Features that `encoder` makes of numbers alone; the base encodes its pictures when it plans."""

    reads_pictures = False

    def __init__(self, executor: PlanningExecutor, encoder: StateReader) -> None:
        self.executor, self.encoder = executor, encoder

    def start(self, obs: Obs, lanes: Lanes) -> None: ...
    def add(self, obs: Obs) -> None: ...

    def see(self, lanes: Lanes) -> LaneObservations:
        features = self.encoder.states(self.executor.history(lanes))
        return LaneObservations(features, {"obs": features})
