"""Tasks in scenes whose instruction says which of several variants is meant, such as which object to lift.

The episode's seed draws the variant, as the first number of the task's start, and the wording.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from robo_rl.core.errors import UnknownNameError
from robo_rl.core.keyed_random import keyed_uniform
from robo_rl.core.shapes import Float, Int64, UInt8
from robo_rl.core.text.instruction import to_bytes

WORDINGS = ("training", "new")
_START, _WORDING = 0, 1  # streams of an episode's random numbers; the first is that of `ResetPrefetch`
_OF_TASK = 1  # row of the task's first number in its stream: the arm's start pose is drawn before


@dataclass(frozen=True)
class TaskVariants:
    """Variants in their order, with the instructions of each: those of demonstrations, and `new` ones for
    evaluation only. All variants have as many.
    """

    training: Mapping[str, tuple[str, ...]]
    new: Mapping[str, tuple[str, ...]]

    @classmethod
    def of(cls, training: Sequence[str], new: Sequence[str], words: Mapping[str, str]) -> TaskVariants:
        """Variants of these names, whose instructions hold `words` in the place of {}."""
        return cls(
            {name: tuple(text.format(each) for text in training) for name, each in words.items()},
            {name: tuple(text.format(each) for text in new) for name, each in words.items()},
        )

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.training)

    def number(self, uniform: Float[Tensor, " k"]) -> Float[Tensor, " k"]:
        """Number of the variant, from the task's first uniform number."""
        return (uniform * len(self.training)).floor()

    def number_of(self, seeds: Int64[Tensor, " k"]) -> Int64[Tensor, " k"]:
        """Number of the variant in the episodes of these seeds."""
        return self.number(keyed_uniform(seeds, 0, _OF_TASK + 1, _START)[_OF_TASK]).long()

    def texts(self, wordings: str) -> list[tuple[str, ...]]:
        """Instructions of each variant. Raises UnknownNameError for an unknown set of wordings."""
        if wordings not in WORDINGS:
            raise UnknownNameError("set of wordings", wordings, WORDINGS)
        return list((self.new if wordings == "new" else self.training).values())

    def encoded(self, wordings: str) -> UInt8[Tensor, "v w 128"]:
        """Bytes of these w instructions of each of v variants."""
        texts = [[torch.from_numpy(to_bytes(text).copy()) for text in each] for each in self.texts(wordings)]
        return torch.stack([torch.stack(each) for each in texts])


def wording_of(seeds: Int64[Tensor, " k"], count: int) -> Int64[Tensor, " k"]:
    """Number of the wording, of `count`, in the episodes of these seeds."""
    return (keyed_uniform(seeds, 0, 1, _WORDING)[0] * count).long()


@runtime_checkable
class InstructedTask(Protocol):
    """Members of such a task, besides those of its suite. Its variant is `TaskVariants.number` of its first
    uniform number.
    """

    variants: TaskVariants

    def target_m(self, view: Any) -> Float[Tensor, "n 3"]:
        """Place of what the instruction names [m; world frame]."""
        ...
