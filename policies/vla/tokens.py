"""Tokens of an instruction for `policy.backbone=tiny`: whole words of the training data, or bytes.

Both follow from the instruction's bytes by tensor operations, so an exported prefix graph reads bytes, too. A
word is a run of letters and digits, in lower case, compared by its first 16 bytes.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from policies.vocabulary import WORD_BYTES
from robo_rl.core.errors import ConfigError
from robo_rl.core.shapes import Int64, UInt8
from robo_rl.core.text.instruction import MOST_BYTES

PADDING, UNKNOWN = 0, 1  # ids; known words follow


class ByteTokens(nn.Module):
    """One token for each byte of the instruction; 0 is padding."""

    count = 256

    def forward(self, text: UInt8[Tensor, "b n"]) -> Int64[Tensor, "b n"]:
        return text.long()


class WordTokens(nn.Module):
    """One token for each word: its place in the vocabulary + 2, 1 for other words, 0 for padding.

    Raises ConfigError for an empty vocabulary, with which all instructions would be alike.
    """

    letters: UInt8[Tensor, "words 16"]

    def __init__(self, vocabulary: Sequence[str]) -> None:
        super().__init__()
        if not vocabulary:
            raise ConfigError(
                "policy.tokens=words needs the words of the training instructions, found none. Train on data "
                "with instructions, or set policy.tokens=bytes."
            )
        self.count = len(vocabulary) + 2
        # a word of an instruction may be a lone dash, which as an instruction is refused
        texts = [torch.frombuffer(bytearray(word.encode()), dtype=torch.uint8) for word in vocabulary]
        rows = torch.cat([spelled(text[None])[0, :1] for text in texts])
        self.register_buffer("letters", rows, persistent=False)

    def forward(self, text: UInt8[Tensor, "b n"]) -> Int64[Tensor, "b w"]:
        words = spelled(text)
        same = (words.unsqueeze(2) == self.letters).all(-1)  # (b, w, words of the vocabulary)
        known = same.any(-1)
        number = torch.where(known, same.long().argmax(-1) + 2, UNKNOWN)
        return torch.where(words[..., 0] != 0, number, PADDING)


def spelled(text: UInt8[Tensor, "b n"]) -> UInt8[Tensor, "b w 16"]:
    """The first 16 bytes of each word, in lower case; zeros after the last word. w = (n + 1) // 2."""
    upper = (text >= ord("A")) & (text <= ord("Z"))
    lower = torch.where(upper, text + 32, text)
    inside = (
        (lower >= ord("a")) & (lower <= ord("z")) | (lower >= ord("0")) & (lower <= ord("9")) | (lower >= 128)
    )
    starts = inside & ~F.pad(inside, (1, 0))[:, :-1]
    most = (text.shape[1] + 1) // 2
    word = (starts.long().cumsum(1) - 1).clamp(min=0)
    letter = inside.long().cumsum(1) - 1  # counted over the whole text
    first = torch.zeros(text.shape[0], most, dtype=torch.long, device=text.device)
    first = first.scatter_add(1, word, letter * starts)  # of each word
    place = letter - first.gather(1, word)
    kept = inside & (place < WORD_BYTES)
    cell = word * WORD_BYTES + place.clamp(0, WORD_BYTES - 1)
    grid = torch.zeros(text.shape[0], most * WORD_BYTES, dtype=torch.long, device=text.device)
    letters = grid.scatter_add(1, cell, lower.long() * kept).to(torch.uint8)
    return letters.view(text.shape[0], most, WORD_BYTES)


def longest_text(count: int) -> UInt8[Tensor, " 128"]:
    """Instruction of `count` bytes with as many bytes that are no padding, and as many words, as possible."""
    text = torch.zeros(MOST_BYTES, dtype=torch.uint8)
    text[:count] = ord(" ")
    text[:count:2] = ord("x")
    return text
