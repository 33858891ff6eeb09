"""Did-you-mean: names similar to a mistyped one, by spelling and by shared words.

Spelling alone finds `colect`, but not `peg insert` among `metaworld/peg-insert-side-v3` and similar names,
whose other letters outweigh the ones that match.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from difflib import SequenceMatcher

CUTOFF = 0.5  # least similarity in [0, 1]
_ALIKE = 0.8  # least similarity of two spellings that differ by a typing error only
_COMMON = 1 / 3  # words in more names than this do not distinguish names
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|\d+")
_VERSION = re.compile(r"[-_]v\d+$")


def nearest(name: str, names: Sequence[str], most: int) -> list[str]:
    """At most `most` of `names` that are similar to `name`, the most similar first."""
    words = {each: _words(each) for each in names}
    held = Counter(word for each in words.values() for word in each)
    common = {word for word, count in held.items() if count > _COMMON * len(names)}
    asked = _words(name) - common
    same = _suite_length(name, names)
    likeness = {
        each: max(_spelling(name[same:], each[same:]), _sharing(asked, words[each] - common))
        for each in names
    }
    # Of names with as many shared words the closest spelling wins: Hoper-v5 is Hopper-v5, not Hopper-v2.
    order = {each: (-likeness[each], -_spelling(name, each)) for each in names if likeness[each] >= CUTOFF}
    likest = sorted(order, key=order.__getitem__)
    return likest[:most]


def is_misspelt(name: str, names: Sequence[str]) -> bool:
    """True where `name` is one of `names` but for a typing error; shared words do not count."""
    return any(_spelling(each, name) >= _ALIKE for each in names)


def _suite_length(name: str, names: Sequence[str]) -> int:
    """Letters up to the slash where all names begin with the same ones; they do not distinguish names."""
    suite = name[: name.find("/") + 1]
    return len(suite) if all(each.startswith(suite) for each in names) else 0


def _words(name: str) -> set[str]:
    """metaworld/peg-insert-side-v3 -> metaworld, peg, insert, side; HalfCheetah-v5 -> half, cheetah."""
    return {word.lower() for word in _WORD.findall(_VERSION.sub("", name))}


def _spelling(one: str, other: str) -> float:
    return SequenceMatcher(None, one, other).ratio()


def _sharing(asked: set[str], words: set[str]) -> float:
    """Similarity by shared words; 0 where less than half of the given words are there."""
    shared = sum(any(word == each or _spelling(word, each) >= _ALIKE for each in words) for word in asked)
    if not asked or not words or shared < 0.5 * len(asked):
        return 0.0
    return CUTOFF + (1.0 - CUTOFF) * (shared / len(asked)) * min(1.0, shared / len(words))
