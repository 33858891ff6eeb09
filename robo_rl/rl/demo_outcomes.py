"""Rewards and ends of the steps of recorded episodes, for a learner."""

from __future__ import annotations

from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from numpy import ndarray
from torch import Tensor

from robo_rl.core.shapes import Bool, Float, Float32


@runtime_checkable
class DemoEpisode(Protocol):
    """One recorded episode. Observations may have one row more than actions: the one after the last action.

    intervention: True where a human acted. success: None where it was not recorded. continues: the recording
    went on after the last step, because this is an earlier part of a split episode.
    """

    @property
    def frames(self) -> int: ...
    @property
    def action(self) -> Float32[ndarray, "n a"]: ...
    @property
    def reward(self) -> Float32[ndarray, " n"]: ...
    @property
    def terminated(self) -> Bool[ndarray, " n"]: ...
    @property
    def intervention(self) -> Bool[ndarray, " n"]: ...
    @property
    def success(self) -> bool | None: ...
    @property
    def continues(self) -> bool: ...
    def obs(self, key: str) -> ndarray: ...


class DemoOutcome(NamedTuple):
    """Reward of every step of an episode and masks of its end. n: steps."""

    reward: Float[Tensor, " n"]
    terminated: Bool[Tensor, " n"]
    truncated: Bool[Tensor, " n"]


def success_outcome(episode: DemoEpisode) -> DemoOutcome:
    """Reward 1 and termination at the last action; truncation without a reward at the cut of a split episode,
    where nothing was reached, unless that part is marked as successful.
    """
    last = torch.zeros(episode.frames, dtype=torch.bool)
    last[-1] = True
    if episode.continues and not episode.success:
        return DemoOutcome(torch.zeros(episode.frames), torch.zeros_like(last), last)
    return DemoOutcome(last.float(), last, torch.zeros_like(last))


def recorded_outcome(episode: DemoEpisode) -> DemoOutcome:
    """Recorded rewards and terminations; an episode without a termination is truncated at its last step."""
    terminated = torch.from_numpy(np.array(episode.terminated))
    truncated = torch.zeros_like(terminated)
    truncated[-1] = ~terminated[-1]
    return DemoOutcome(torch.from_numpy(np.array(episode.reward)), terminated, truncated)


def take_over_outcome(episode: DemoEpisode) -> DemoOutcome:
    """RLIF (2311.12996): 1 at the step before each take-over, 0 elsewhere; a success terminates."""
    human = torch.from_numpy(np.array(episode.intervention))
    mark = torch.zeros(episode.frames)
    mark[:-1] = (human[1:] & ~human[:-1]).float()
    return (success_outcome if episode.success else recorded_outcome)(episode)._replace(reward=mark)


def without_unobserved_step(outcome: DemoOutcome, observations: int) -> DemoOutcome:
    """The outcome without a last step whose next observation was not recorded.

    A time-out is bootstrapped from that observation.
    """
    steps = len(outcome.reward)
    if observations > steps or bool(outcome.terminated[-1]):
        return outcome
    truncated = outcome.truncated[:-1].clone()
    truncated[-1:] = True
    return DemoOutcome(outcome.reward[:-1], outcome.terminated[:-1], truncated)
