"""Instructions varied in training, so that a policy learns words and not one sentence of them.

Each window is told its task in another wording of the data, with words replaced and inserted at random places
by words that mean nothing. Numbers are functions of (seed, update, row), so resuming is exact.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from policies.training.batches import ALONE, WindowSource
from policies.vla.config import VlaConfig
from robo_rl.core.protocols import Obs
from robo_rl.core.seeding import derive_seed
from robo_rl.core.shapes import Float, UInt8
from robo_rl.core.text.instruction import INSTRUCTION, MOST_BYTES, padded, to_text
from robo_rl.nets.ranks import Ranks

LETTERS = "abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True)
class RewordedWindows:
    """`source` with other instructions; see `reworded`."""

    source: WindowSource
    wordings: Mapping[str, Sequence[str]]
    config: VlaConfig

    def __len__(self) -> int:
        return len(self.source)

    def batches(
        self,
        batch_size: int,
        seed: int,
        start: int,
        stop: int,
        device: torch.device,
        ranks: Ranks = ALONE,
    ) -> Iterator[tuple[Obs, Float[Tensor, "b Tp a"]]]:
        rows = ranks.shard(torch.arange(batch_size)).tolist()
        batches = self.source.batches(batch_size, seed, start, stop, device, ranks)
        for step, (obs, action) in enumerate(batches, start):
            texts = [
                self._reworded(text, derive_seed("wording", seed, step, row))
                for row, text in zip(rows, obs[INSTRUCTION].cpu(), strict=True)
            ]
            yield {**obs, INSTRUCTION: torch.stack(texts).to(device)}, action

    def _reworded(self, text: UInt8[Tensor, "K_1 128"], seed: int) -> UInt8[Tensor, "1 128"]:
        rng = np.random.Generator(np.random.Philox(seed))
        instruction = reworded(to_text(text[-1].numpy()), self.wordings, self.config, rng)
        return torch.from_numpy(padded(instruction).copy())[None]


def reworded(
    text: str, wordings: Mapping[str, Sequence[str]], config: VlaConfig, rng: np.random.Generator
) -> str:
    """The instruction in a random wording, with words replaced and inserted. wordings: of the same task.

    An instruction that would be too long is returned unchanged.
    """
    chosen = text
    if rng.random() < config.rewording:
        alike = wordings.get(text, (text,))
        chosen = alike[int(rng.integers(len(alike)))]
    words = [meaningless(rng) if rng.random() < config.word_dropout else word for word in chosen.split()]
    for _ in range(rng.integers(config.word_insertions + 1)):
        words.insert(int(rng.integers(len(words) + 1)), meaningless(rng))
    varied = " ".join(words)
    return varied if len(varied.encode()) <= MOST_BYTES else text


def meaningless(rng: np.random.Generator) -> str:
    """Word of three to eight random letters."""
    return "".join(LETTERS[i] for i in rng.integers(len(LETTERS), size=rng.integers(3, 9)))


def varies(config: VlaConfig) -> bool:
    """True if training changes instructions."""
    return config.rewording > 0.0 or config.word_dropout > 0.0 or config.word_insertions > 0
