"""Instructions as goals: what each video is for, and features of an instruction from its words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from policies.vocabulary import vocabulary_of, words_in
from robo_rl.core.shapes import Bool, Float, Int64


@dataclass(frozen=True)
class VideoInstructions:
    """Instruction of each video as numbers of words, and whether it is reached at the video's last frame.

    words: from 1 on; 0 after the last word. vocabulary: number of different words.
    """

    words: Int64[Tensor, "videos m"]
    reached: Bool[Tensor, " videos"]
    vocabulary: int

    @classmethod
    def of(cls, texts: Sequence[str], reached: Sequence[bool]) -> VideoInstructions:
        """Instructions from texts, each of one word or more."""
        numbers = {word: number for number, word in enumerate(vocabulary_of(texts), 1)}
        rows = [torch.tensor([numbers[word] for word in words_in(text)]) for text in texts]
        return cls(pad_sequence(rows, batch_first=True), torch.tensor(reached), len(numbers))


class InstructionFeatures(nn.Module):
    """Mean of the learned vectors of an instruction's words, scaled like the features of a picture."""

    def __init__(self, vocabulary: int, features: int) -> None:
        super().__init__()
        self.vectors = nn.Embedding(vocabulary + 1, features, padding_idx=0)

    def forward(self, words: Int64[Tensor, "b m"]) -> Float[Tensor, "b f"]:
        """Zeros in rows without words."""
        count = (words > 0).sum(1, keepdim=True).clamp(min=1)
        mean: Tensor = self.vectors(words).sum(1) / count
        return F.layer_norm(mean, mean.shape[1:])
