"""Suggestions for mistyped names, by spelling and by shared words.

Spelling alone finds `colect`, but not `peg insert` among names such as `metaworld/peg-insert-side-v3`, whose
other letters outweigh the matching ones.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from difflib import SequenceMatcher

CUTOFF = 0.5  # least similarity, in [0, 1]
_ALIKE = 0.8  # least similarity of spellings that differ by a typing error only
_COMMON = 1 / 3  # words in more names than this do not distinguish names
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|\d+")
_VERSION = re.compile(r"[-_]v\d+$")


def nearest(name: str, names: Sequence[str], most: int) -> list[str]:
    """At most `most` of `names`, those similar to `name`, most similar first."""
    words = {each: _words(each) for each in names}
    held = Counter(word for each in words.values() for word in each)
    common = {word for word, count in held.items() if count > _COMMON * len(names)}
    wanted = _words(name) - common
    same = _suite_length(name, names)
    likeness = {
        each: max(_spelling(name[same:], each[same:]), _sharing(wanted, words[each] - common))
        for each in names
    }
    # Among names with equally many shared words, spelling decides: Hoper-v5 is Hopper-v5, not Hopper-v2.
    order = {each: (-likeness[each], -_spelling(name, each)) for each in names if likeness[each] >= CUTOFF}
    likest = sorted(order, key=order.__getitem__)
    return likest[:most]


def did_you_mean(name: str, names: Sequence[str]) -> str:
    """Question "Did you mean '<nearest>'?" with a blank before it; empty if no name is similar."""
    close = nearest(name, names, 1)
    return f" Did you mean '{close[0]}'?" if close else ""


def is_misspelt(name: str, names: Sequence[str]) -> bool:
    """True if `name` is one of `names` except for a typing error; shared words do not count."""
    return any(_spelling(each, name) >= _ALIKE for each in names)


def _suite_length(name: str, names: Sequence[str]) -> int:
    """Length of the common prefix up to the slash, which does not distinguish names; 0 without one."""
    suite = name[: name.find("/") + 1]
    return len(suite) if all(each.startswith(suite) for each in names) else 0


def _words(name: str) -> set[str]:
    """metaworld/peg-insert-side-v3 -> metaworld, peg, insert, side; HalfCheetah-v5 -> half, cheetah."""
    return {word.lower() for word in _WORD.findall(_VERSION.sub("", name))}


def _spelling(one: str, other: str) -> float:
    return SequenceMatcher(None, one, other).ratio()


def _sharing(wanted: set[str], words: set[str]) -> float:
    """Similarity by shared words; 0 if fewer than half of the given words occur."""
    shared = sum(any(word == each or _spelling(word, each) >= _ALIKE for each in words) for word in wanted)
    if not wanted or not words or shared < 0.5 * len(wanted):
        return 0.0
    return CUTOFF + (1.0 - CUTOFF) * (shared / len(wanted)) * min(1.0, shared / len(words))
