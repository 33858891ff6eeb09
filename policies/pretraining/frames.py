"""Frames of videos, and the frames that one update of value learning reads.

A video is what one camera saw of one episode. Nothing here has state: the frames of an update are a function
of (seed, update), so resuming is exact.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from numpy import ndarray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from policies.pretraining.instructions import VideoInstructions
from policies.training.batches import leave_stops_to_parent
from robo_rl.core.errors import ConfigError, DataError
from robo_rl.core.seeding import generator
from robo_rl.core.settings import setting
from robo_rl.core.shapes import Bool, Float, Int64, UInt8
from robo_rl.core.spec import EnvSpec


@dataclass
class GoalConfig:
    """Choice of goals: a later frame of the video, the frame itself, else any frame of the data."""

    gamma: float = setting(0.99, "discount of a frame; it also spaces the later goals", above=0.0, below=1.0)
    future_goals: float = setting(
        0.5, "share of goals that are a later frame of the same video", at_least=0.0, at_most=1.0
    )
    current_goals: float = setting(
        0.2, "share of goals that are the frame itself; the others are any frame", at_least=0.0, at_most=1.0
    )
    same_goal: float = setting(
        0.5, "share of samples whose goal is also their intention", at_least=0.0, at_most=1.0
    )
    instruction_goals: float = setting(
        0.0,
        "share of samples whose goal and intention are the instruction of their episode instead of frames",
        at_least=0.0,
        at_most=1.0,
    )


@runtime_checkable
class Pictures(Protocol):
    """Pictures of one camera, of one episode after the other: a `robo_rl.data.windows.WindowDataset` of one
    observation.
    """

    env: EnvSpec
    keys: tuple[str, ...]  # of the camera alone

    @property
    def lengths(self) -> Int64[ndarray, " episodes"]:
        """Number of pictures of each episode."""
        ...

    def __len__(self) -> int: ...

    def gather(self, indices: Int64[ndarray, " b"]) -> Mapping[str, Tensor]:
        """{camera: (b, 1, h, w, 3)}."""
        ...


class VideoFrames(Dataset[UInt8[Tensor, "h w 3"]]):
    """Frames of videos of one size, one video after the other.

    parts: windows of one observation and one camera each. The last observation of an episode, which has no
    action, belongs to no window and is left out.
    instructions: those of the videos; None: instructions are no goals.
    """

    def __init__(self, parts: Sequence[Pictures], instructions: VideoInstructions | None = None) -> None:
        self._parts, self.instructions = list(parts), instructions
        self._part_ends = np.cumsum([len(part) for part in self._parts])
        self.shape: tuple[int, ...] = self._parts[0].env.obs[self._parts[0].keys[0]].shape
        self.lengths: Int64[Tensor, " videos"] = torch.from_numpy(
            np.concatenate([part.lengths for part in self._parts])
        )

    def __len__(self) -> int:
        return int(self._part_ends[-1])

    def __getitem__(self, index: int) -> UInt8[Tensor, "h w 3"]:
        return self.read([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> UInt8[Tensor, "n h w 3"]:
        return self.read(indices)

    def read(self, indices: Sequence[int]) -> UInt8[Tensor, "n h w 3"]:
        """Frames in the order of `indices`."""
        index = np.asarray(indices, dtype=np.int64)
        owner = np.searchsorted(self._part_ends, index, side="right")
        frames = torch.empty((len(index), *self.shape), dtype=torch.uint8)
        for number in np.unique(owner).tolist():
            part, place = self._parts[number], np.flatnonzero(owner == number)
            first = self._part_ends[number] - len(part)
            frames[torch.from_numpy(place)] = part.gather(index[place] - first)[part.keys[0]][:, 0]
        return frames

    def batches(self, picks: Iterator[FrameIndices], workers: int) -> Iterator[UInt8[Tensor, "rows h w 3"]]:
        """Frames of each element of `picks`: now, next, goal and intention, one after the other."""
        loader: DataLoader[Any] = DataLoader(
            self,
            batch_sampler=(each.order() for each in picks),
            num_workers=workers,
            collate_fn=_as_read,
            worker_init_fn=leave_stops_to_parent,
        )
        yield from loader


def _as_read(frames: Tensor | list[Tensor]) -> Tensor | list[Tensor]:
    """The tensor that `VideoFrames.read` returned."""
    return frames


@dataclass(frozen=True)
class FrameIndices:
    """Numbers of the frames of one update, and the positions of their crops in [0, 1).

    A frame and the next one have the same crop, so that a shift of the crop is no motion.
    """

    now: Int64[Tensor, " b"]  # the next frame is now + 1
    goal: Int64[Tensor, " b"]
    intent: Int64[Tensor, " b"]
    crop: Float[Tensor, "3 b 2"]  # of frame and next one, goal, intention
    words: Int64[Tensor, "b m"] | None = None  # instruction in place of goal and intention; else zeros
    done: Bool[Tensor, " b"] | None = None  # the instruction is reached at this frame, which has no next one

    @property
    def at_goal(self) -> Bool[Tensor, " b"]:
        return self._reached(self.goal)

    @property
    def at_intent(self) -> Bool[Tensor, " b"]:
        return self._reached(self.intent)

    def _reached(self, goal: Int64[Tensor, " b"]) -> Bool[Tensor, " b"]:
        if self.words is None or self.done is None:
            return self.now == goal
        return torch.where(self.words.any(1), self.done, self.now == goal)

    @property
    def crops(self) -> Float[Tensor, "rows 2"]:
        """Positions in the order of `order`."""
        return torch.cat([self.crop[0], *self.crop])

    def order(self) -> list[int]:
        """Numbers of the frames to read: now, next, goal and intention."""
        then = self.now + 1 if self.done is None else self.now + (~self.done).long()
        numbers: list[int] = torch.cat([self.now, then, self.goal, self.intent]).tolist()
        return numbers


def pick_frames(
    lengths: Int64[Tensor, " videos"],
    batch: int,
    config: GoalConfig,
    seed: int,
    step: int,
    instructions: VideoInstructions | None = None,
) -> FrameIndices:
    """Frames of update `step`. Each frame that has a next one in its video is equally likely.

    Where an instruction is the goal and is reached at the end of its video, the frame is that end with
    probability `current_goals`. The end of other videos is never drawn: it has no next frame for a target.
    """
    moves, ends = (lengths - 1).cumsum(0), lengths.cumsum(0)
    rng = generator("video", seed, step)
    move = torch.randint(int(moves[-1]), (batch,), generator=rng)
    video = torch.searchsorted(moves, move, right=True)
    now, last = move + video, ends[video] - 1  # each earlier video has one frame more than moves
    intent = _goals(now, last, int(ends[-1]), config, rng)
    other = _goals(now, last, int(ends[-1]), config, rng)
    same = torch.rand(batch, generator=rng) < config.same_goal
    picks = FrameIndices(
        now, torch.where(same, intent, other), intent, torch.rand(3, batch, 2, generator=rng)
    )
    if instructions is None:
        return picks
    # Drawn last, so that the other rows are those of a training without instructions.
    with_words = torch.rand(batch, generator=rng) < config.instruction_goals
    ends_here = torch.rand(batch, generator=rng) < config.current_goals
    done = with_words & ends_here & instructions.reached[video]
    return replace(
        picks,
        now=torch.where(done, last, now),
        words=instructions.words[video] * with_words[:, None],
        done=done,
    )


def _goals(
    now: Int64[Tensor, " b"],
    last: Int64[Tensor, " b"],
    total: int,
    config: GoalConfig,
    rng: torch.Generator,
) -> Int64[Tensor, " b"]:
    """A later frame is k >= 1 frames ahead with probability (1 - gamma) gamma^(k - 1), at most the last."""
    u = torch.rand(len(now), generator=rng, dtype=torch.float64)
    ahead = (torch.log1p(-u) / math.log(config.gamma)).floor() + 1.0
    future = (now + ahead.clamp(max=float(total)).long()).minimum(last)
    anywhere = torch.randint(total, now.shape, generator=rng)
    kind = torch.rand(len(now), generator=rng)
    elsewhere = torch.where(kind < config.current_goals + config.future_goals, future, anywhere)
    return torch.where(kind < config.current_goals, now, elsewhere)


def check_goals(config: GoalConfig) -> None:
    """Raise ConfigError if the shares of goals exceed 1 together."""
    if config.future_goals + config.current_goals > 1.0:
        raise ConfigError(
            f"future_goals={config.future_goals} and current_goals={config.current_goals} are shares of the "
            "same goals and exceed 1 together. Lower one of them."
        )


def check_videos(lengths: Int64[Tensor, " videos"], path: str) -> None:
    """Raise DataError unless some video has two frames."""
    if not len(lengths) or int(lengths.max()) < 2:
        raise DataError(
            f"{path} holds no video with two frames or more, so nothing follows a frame. Record longer "
            "episodes."
        )
