"""Keyword arguments of the Python API, in the words of the command line.

An object with a path stands for it: `base=run`, `data=[dataset, "data/more"]`, `image={"init": run}`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from numbers import Real
from typing import Any

import numpy as np

from robo_rl.apps.cli.overrides import with_home
from robo_rl.conf.dotted import as_typed
from robo_rl.conf.fields import Setting
from robo_rl.core.errors import ConfigError

PLACES = "give text or a path, or a Run, a Dataset or a Bundle, which stands for its path"


def words(given: Mapping[str, Any], known: Mapping[str, Setting], prefix: str = "") -> Iterator[str]:
    """`key=value` for every argument, with nested dicts as dotted keys.

    Raises ConfigError for an object that no setting takes, such as a dict in place of a path.
    """
    for name, value in given.items():
        key = prefix + name
        if isinstance(value, Mapping) and all(isinstance(each, str) for each in value) and _nests(key, known):
            yield from words(value, known, f"{key}.")
        else:
            yield f"{key}={_typed(key, value, known.get(key))}"


def place(key: str, value: Any) -> str:
    """The path that an argument of the API stands for. Raises ConfigError for an object without one."""
    if isinstance(value, str | os.PathLike):
        return with_home(os.fsdecode(value))
    raise ConfigError(f"{key} is {_kind(value)}; {PLACES}.")


def _nests(key: str, known: Mapping[str, Setting]) -> bool:
    """True unless the key is one setting, whose value is no dict."""
    return key not in known or any(each.startswith(f"{key}.") for each in known)


def _typed(key: str, value: Any, setting: Setting | None) -> str:
    """The value as typed; lists of paths as `data=` has them: [a,b], without quotes."""
    plain = _plain(key, value, setting)
    if isinstance(plain, list) and setting is not None and setting.plain_type is str:
        return f"[{','.join(map(str, plain))}]"
    return as_typed(plain)


def _plain(key: str, value: Any, setting: Setting | None) -> Any:
    """The value with paths as text, NumPy's numbers as Python's, and sequences as lists."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, str | Real):
        return value
    if isinstance(value, os.PathLike):
        return os.fsdecode(value)
    if isinstance(value, Sequence) and not isinstance(value, bytes):
        return [_plain(key, each, setting) for each in value]
    if setting is None:
        return str(value)  # the key is refused later, by its name
    free_text = setting.plain_type in (str, list[str]) and not setting.choices
    raise ConfigError(f"{key} is {_kind(value)}; {PLACES if free_text else f'give: {setting.type_words}'}.")


def _kind(value: Any) -> str:
    name = type(value).__name__
    return f"{'an' if name[0] in 'AEIOUaeiou' else 'a'} {name}"
