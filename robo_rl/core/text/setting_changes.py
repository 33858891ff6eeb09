"""Settings that differ between a saved run or checkpoint and its continuation, by dotted name."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import MISSING, Field, asdict, dataclass, fields, is_dataclass
from typing import Any

_ABSENT: Any = object()  # a setting without a value on one side
_MOST_NAMED = 8  # settings in one sentence


@dataclass(frozen=True)
class SettingChange:
    """A setting with its saved and its present value, both as typed on the command line."""

    key: str  # dotted, e.g. "method.map.scale"
    saved: str
    now: str


def setting_changes(config: Any, saved: Mapping[str, Any], free: Collection[str] = ()) -> list[SettingChange]:
    """Settings of the dataclass `config` that differ from `saved`, apart from the top-level ones in `free`.

    A setting that `saved` lacks was added to the software later, and counts as its default. Of a group with a
    `name`, such as a method or a network, the name alone is given if it differs.
    """
    values = {item.name: getattr(config, item.name) for item in fields(config) if item.name not in free}
    defaults = {item.name: _default(item) for item in fields(config)}
    kept = {key: value for key, value in saved.items() if key not in free}
    return list(_tree_changes(values, defaults, kept, ""))


def change_words(changes: list[SettingChange]) -> tuple[str, str]:
    """The settings with their saved values, and with their present ones: "lr=0.1, seed=1"."""
    named = changes[:_MOST_NAMED]
    rest = [f"{len(changes) - len(named)} more"] if len(changes) > len(named) else []
    before = ", ".join([*(f"{change.key}={change.saved}" for change in named), *rest])
    return before, ", ".join([*(f"{change.key}={change.now}" for change in named), *rest])


def as_typed(value: Any) -> str:
    """A setting's value in the words of the command line: none, true, [1,2], {key: value}."""
    if value is None or value is _ABSENT:
        return "none" if value is None else "(no such setting)"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return f"[{','.join(as_typed(each) for each in value)}]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {as_typed(each)}" for key, each in value.items()) + "}"
    return str(value)


def _tree_changes(
    values: Mapping[str, Any], defaults: Mapping[str, Any], saved: Mapping[str, Any], prefix: str
) -> Iterator[SettingChange]:
    for name in sorted(values.keys() | saved.keys()):
        now = values.get(name, _ABSENT)
        before = saved.get(name, defaults.get(name, _ABSENT))
        yield from _changes(prefix + name, now, before)


def _changes(key: str, now: Any, before: Any) -> Iterator[SettingChange]:
    if is_dataclass(before) and not isinstance(before, type):  # a default
        before = asdict(before)
    is_group = is_dataclass(now) and not isinstance(now, type)
    if not (is_group and isinstance(before, Mapping)):
        if _plain(now) != _plain(before) and not (now is _ABSENT and before is None):
            yield SettingChange(key, as_typed(_plain(before)), as_typed(_plain(now)))
        return
    values = {item.name: getattr(now, item.name) for item in fields(now)}
    if "name" in values and values["name"] != before.get("name", values["name"]):
        yield SettingChange(key, as_typed(before["name"]), as_typed(values["name"]))
        return
    defaults = {item.name: _default(item) for item in fields(now)}
    yield from _tree_changes(values, defaults, before, f"{key}.")


def _default(item: Field[Any]) -> Any:
    if item.default_factory is not MISSING:
        return item.default_factory()
    return _ABSENT if item.default is MISSING else item.default


def _plain(value: Any) -> Any:
    """The value as a file returns it: dataclasses as dicts, tuples as lists."""
    if is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else value
