"""Suggestions for mistyped names."""

from __future__ import annotations

import pytest

from robo_rl.core.text.nearest import nearest

TASKS = (
    "box/lift-cup-v3",
    "box/open-drawer-v3",
    "box/peg-insert-side-v3",
    "box/push-v3",
    "gym/HalfCheetah-v5",
)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("box/puhs-v3", "box/push-v3"),  # a slip
        ("peg insert", "box/peg-insert-side-v3"),  # words, which spelling alone gives 0.47
        ("insert the peg", "box/peg-insert-side-v3"),
        ("drawr open", "box/open-drawer-v3"),  # a slip in a word
        ("half cheetah", "gym/HalfCheetah-v5"),
        ("lift", "box/lift-cup-v3"),
    ],
)
def test_nearest_by_spelling_and_by_parts(name: str, meant: str) -> None:
    """The most similar name comes first."""
    assert nearest(name, TASKS, 5)[0] == meant


@pytest.mark.parametrize("name", ["xx", "", "v3", "box"])
def test_dissimilar_name_has_no_suggestion(name: str) -> None:
    """Versions and suites that most names share do not affect the order."""
    assert nearest(name, TASKS, 5) == []


def test_common_prefix_is_ignored() -> None:
    """Only the part after the common suite is compared."""
    assert nearest("long-suite/nope", ("long-suite/far", "long-suite/window"), 5) == []
    assert nearest("long-suite/opne", ("long-suite/far", "long-suite/open"), 5) == ["long-suite/open"]


def test_exact_part_ranks_first() -> None:
    """A larger share of common words ranks higher; no more names are returned than requested."""
    names = ("arm/push", "arm/push_bar", "arm/pull", "hand/turn")
    assert nearest("push bar", names, 5)[:2] == ["arm/push_bar", "arm/push"]
    assert nearest("push bar", names, 1) == ["arm/push_bar"]
