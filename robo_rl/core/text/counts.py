"""Counts in messages: "1 error", "2 errors"."""

from __future__ import annotations


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """The number and its noun, e.g. "1 episode", "0 episodes". plural: for nouns whose plural is not noun +
    "s".
    """
    return f"{number} {noun if number == 1 else plural or noun + 's'}"
