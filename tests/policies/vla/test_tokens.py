"""Tokens of instructions: words as they are written, unknown ones, padding."""

from __future__ import annotations

import pytest
import torch

from policies.vla.tokens import ByteTokens, WordTokens, longest_text, spelled
from policies.vocabulary import unknown_words, vocabulary_of, words_in
from robo_rl.core.errors import ConfigError
from robo_rl.core.text.instruction import MOST_BYTES, padded

TEXTS = (
    "open the drawer",
    "  Open, the DRAWER!",
    "let the water run, open the tap",
    "öffne die Schublade",
    "a" * 40 + " b",
    "x",
    "x " * 63 + "x",
    "...",
)


def rows(*texts: str) -> torch.Tensor:
    return torch.stack([torch.from_numpy(padded(text).copy()) for text in texts])


def test_words_are_separated_as_by_a_regular_expression() -> None:
    """Tensor operations and `words_in` agree: capitals, commas, other alphabets, long and many words."""
    for text, letters in zip(TEXTS, spelled(rows(*TEXTS)), strict=True):
        found = [bytes(row.tolist()).rstrip(b"\0") for row in letters if row.any()]
        assert found == [word.encode()[:16] for word in words_in(text)]


def test_ids_do_not_depend_on_place_capitals_or_commas() -> None:
    tokens = WordTokens(vocabulary_of(["open the drawer", "close the drawer"]))
    assert tokens.count == 4 + 2
    ids = tokens(rows("open the drawer", "please, OPEN the drawer", "the drawer: open"))
    close, drawer, opened, the = 2, 3, 4, 5
    assert ids[:, :5].tolist() == [
        [opened, the, drawer, 0, 0],
        [1, opened, the, drawer, 0],
        [the, drawer, opened, 0, 0],
    ]
    assert tokens(rows("close"))[0, 0] == close
    assert not tokens(rows("..."))[0].any()


def test_unknown_words_are_those_with_the_unknown_id() -> None:
    """Words are compared by their first 16 bytes, and each is named once; a dash is a word."""
    vocabulary = vocabulary_of(["open \u2014 the drawer", "a" * 20])
    text = "OPEN the zzz, the qqq \u2014 zzz " + "a" * 16
    assert unknown_words(text, vocabulary) == ["zzz", "qqq"]
    assert WordTokens(vocabulary)(rows(text))[0].tolist().count(1) == 3


def test_a_vocabulary_is_needed() -> None:
    with pytest.raises(ConfigError, match=r"policy\.tokens=bytes"):
        WordTokens([])


@pytest.mark.parametrize("count", [1, 2, 31, MOST_BYTES])
def test_the_longest_text_has_the_most_tokens(count: int) -> None:
    """Of bytes and of words, so that a store made for it holds every instruction of that length."""
    text = longest_text(count)[None]
    assert int((ByteTokens()(text) != 0).sum()) == count
    assert int((WordTokens(["x"])(text) != 0).sum()) == (count + 1) // 2
