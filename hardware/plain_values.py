"""Plain values, as YAML and JSON hold them, read as what they should be; a mistake names its key.

`where` is the key in words, as in "mine.yaml: joint 'elbow': low_rad". Everything here raises ConfigError.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from robo_rl.core.errors import ConfigError

Vec3 = tuple[float, float, float]
_WORDS = {
    bool: "true or false",
    int: "a number",
    float: "a number",
    str: "text",
    list: "a list",
    dict: "keys",
    tuple: "a list",
}


def number(value: Any, where: str) -> float:
    """Also from text such as 1e-3, which is no number to YAML."""
    if isinstance(value, int | float | str) and not isinstance(value, bool):
        try:
            return float(value)
        except ValueError:
            pass
    raise ConfigError(f"{where} must be a number, found {shown(value)}.")


def whole(value: Any, where: str) -> int:
    if isinstance(value, int | float) and not isinstance(value, bool) and value == value // 1:
        return int(value)
    raise ConfigError(f"{where} must be a whole number, found {shown(value)}.")


def vector(value: Any, where: str) -> Vec3:
    if not isinstance(value, list | tuple) or len(value) != 3:
        raise ConfigError(f"{where} must be three numbers [x, y, z], found {shown(value)}.")
    x, y, z = (number(item, where) for item in value)
    return x, y, z


def text(value: Any, where: str) -> str:
    """Also from a number: joints may be called 1, 2, 3."""
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        return str(value)
    raise ConfigError(f"{where} must be text, found {shown(value)}.")


def rows(value: Any, where: str) -> Sequence[Any]:
    if isinstance(value, list | tuple):
        return value
    raise ConfigError(f"{where} must be a list, found {shown(value)}.")


def keys(
    value: Any, where: str, known: Iterable[str] | None = None, needed: Iterable[str] = ()
) -> Mapping[str, Any]:
    """A mapping that holds all `needed` keys, and none but `known` ones; any key when `known` is None."""
    if not isinstance(value, Mapping):
        raise ConfigError(f"{where} must hold 'key: value' lines, found {shown(value)}.")
    names = None if known is None else list(known)
    for key in value:
        if names is not None and key not in names:
            near = get_close_matches(str(key), names, n=1)
            hint = f" Did you mean '{near[0]}'?" if near else ""
            raise ConfigError(f"{where} has no '{key}'.{hint} Known: {', '.join(names)}.")
    if missing := [key for key in needed if value.get(key) is None]:
        raise ConfigError(f"{where} lacks {', '.join(missing)}.")
    return value


def shown(value: Any) -> str:
    """The value and what it is, short enough for a sentence."""
    if value is None:
        return "nothing"
    text_of = repr(value)
    return f"{text_of[:40]}{'...' if len(text_of) > 40 else ''} ({_WORDS.get(type(value), type(value).__name__)})"
