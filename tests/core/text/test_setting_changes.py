"""Resume compares settings by dotted name, and takes a setting that is new in the software as its default."""

from __future__ import annotations

import copy
from dataclasses import asdict, dataclass, field
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from robo_rl.conf.fields import variant
from robo_rl.conf.finetune import FinetuneVerb
from robo_rl.core.text.setting_changes import change_words, setting_changes


@dataclass
class _Small:
    name: str = "small"
    width: int = 64
    sizes: tuple[int, ...] = (1, 2)


@dataclass
class _Large:
    name: str = "large"
    width: int = 512
    heads: int = 8


@dataclass
class _Verb:
    out: str
    lr: float = 0.1
    base: str | None = None
    net: _Small | _Large = variant({"small": _Small, "large": _Large})
    twin: _Small = field(default_factory=lambda: _Small(width=32))
    scene: dict[str, Any] = field(default_factory=dict)


def saved(config: Any) -> Any:
    """Settings as a run's config.yaml returns them."""
    return yaml.safe_load(yaml.safe_dump(asdict(config)))


@pytest.mark.parametrize(
    ("config", "edit", "expected"),
    [
        (_Verb("x"), {}, []),
        (_Verb("x", lr=0.2), {}, ["lr 0.1 0.2"]),
        (_Verb("x", base="runs/b"), {}, ["base none runs/b"]),
        (_Verb("x", net=_Small(width=9)), {}, ["net.width 64 9"]),
        (_Verb("x", net=_Large()), {}, ["net small large"]),  # not its seven other settings
        (_Verb("x", scene={"fog": 1}), {}, ["scene {} {fog: 1}"]),
        # settings that the run lacks, because they are newer: their default is no change, another value is
        (_Verb("x"), {"lr": None, "net": {"name": "small"}, "twin": None}, []),
        (_Verb("x", twin=_Small()), {"twin": None}, ["twin.width 32 64"]),
        (_Verb("x", lr=1.0), {"lr": None}, ["lr 0.1 1.0"]),
        (_Verb("x"), {"out": None}, ["out (no such setting) x"]),  # required: it has no default
        # settings that the software no longer has
        (_Verb("x"), {"old": 3}, ["old 3 (no such setting)"]),
        (_Verb("x"), {"net": asdict(_Small()) | {"old": True}}, ["net.old true (no such setting)"]),
    ],
)
def test_table_of_changes(config: _Verb, edit: dict[str, Any], expected: list[str]) -> None:
    """`edit` replaces settings of a saved run that was started with the defaults; None takes one out."""
    before = {
        key: value
        for key, value in {**saved(_Verb("x")), **edit}.items()
        if value is not None or key not in edit
    }
    changes = setting_changes(config, before)
    assert [f"{change.key} {change.saved} {change.now}" for change in changes] == expected
    assert not setting_changes(config, before, free=[change.key.split(".")[0] for change in changes])


def paths(tree: dict[str, Any], prefix: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Path of every leaf."""
    found: list[tuple[str, ...]] = []
    for key, value in tree.items():
        found += paths(value, (*prefix, key)) if isinstance(value, dict) and value else [(*prefix, key)]
    return found


SETTINGS = saved(FinetuneVerb(out="runs/x"))
LEAVES = [path for path in paths(SETTINGS) if path[-1] != "name" and path != ("out",)]


@given(removed=st.sets(st.sampled_from(LEAVES)), changed=st.sets(st.sampled_from(LEAVES), max_size=12))
def test_exactly_the_changed_settings_are_named(
    removed: set[tuple[str, ...]], changed: set[tuple[str, ...]]
) -> None:
    """For any settings of finetune that an older version lacked and any that the user changed."""
    before = copy.deepcopy(SETTINGS)
    for *groups, last in removed | changed:
        group = before
        for name in groups:
            group = group[name]
        if (*groups, last) in changed:
            group[last] = "another"
        else:
            del group[last]
    changes = setting_changes(FinetuneVerb(out="runs/x"), before)
    assert {change.key for change in changes} == {".".join(path) for path in changed}


def test_the_sentence_names_at_most_eight() -> None:
    """A wall of 2,000 characters hides the one setting that the user has to change."""
    changes = setting_changes(FinetuneVerb(out="x"), SETTINGS | {f"old{i}": i for i in range(20)}, ("out",))
    before, now = change_words(changes)
    assert before.startswith("old0=0, old1=1")
    assert before.endswith(", 12 more")
    assert len(now) < 400
