"""Type checks and conversions for values from YAML and JSON files.

`where` names the key in error messages, such as "mine.yaml: joint 'elbow': low_rad". Every function raises
ConfigError for a value of the wrong type.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from robo_rl.core.errors import ConfigError
from robo_rl.core.text.nearest import nearest

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
    """A float. Text such as "1e-3" is accepted, because YAML does not parse it as a number."""
    if isinstance(value, int | float | str) and not isinstance(value, bool):
        try:
            return float(value)
        except ValueError:
            pass
    raise ConfigError(f"{where} must be a number, found {describe_value(value)}.")


def integer(value: Any, where: str) -> int:
    """An integer, also from a float without a fraction."""
    if isinstance(value, int | float) and not isinstance(value, bool) and value == value // 1:
        return int(value)
    raise ConfigError(f"{where} must be a whole number, found {describe_value(value)}.")


def vector(value: Any, where: str) -> Vec3:
    """Three floats."""
    if not isinstance(value, list | tuple) or len(value) != 3:
        raise ConfigError(f"{where} must be three numbers [x, y, z], found {describe_value(value)}.")
    x, y, z = (number(item, where) for item in value)
    return x, y, z


def text(value: Any, where: str) -> str:
    """A string. Numbers are converted, because joints may be named 1, 2, 3."""
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        return str(value)
    raise ConfigError(f"{where} must be text, found {describe_value(value)}.")


def sequence(value: Any, where: str) -> Sequence[Any]:
    """A list or tuple."""
    if isinstance(value, list | tuple):
        return value
    raise ConfigError(f"{where} must be a list, found {describe_value(value)}.")


def mapping(
    value: Any, where: str, known: Iterable[str] | None = None, needed: Iterable[str] = ()
) -> Mapping[str, Any]:
    """A mapping that has all `needed` keys and only `known` ones (None: any key)."""
    if not isinstance(value, Mapping):
        raise ConfigError(f"{where} must hold 'key: value' lines, found {describe_value(value)}.")
    names = None if known is None else list(known)
    for key in value:
        if names is not None and key not in names:
            near = nearest(str(key), names, 1)
            hint = f" Did you mean '{near[0]}'?" if near else ""
            raise ConfigError(f"{where} has an unknown key '{key}'.{hint} Known: {', '.join(names)}.")
    if missing := [key for key in needed if value.get(key) is None]:
        raise ConfigError(f"{where} lacks {', '.join(missing)}.")
    return value


def describe_value(value: Any) -> str:
    """The value, cut to 40 characters, and its type in words."""
    if value is None:
        return "nothing"
    text_of, kind = repr(value), _WORDS.get(type(value), type(value).__name__)
    return f"{text_of[:40]}{'...' if len(text_of) > 40 else ''} ({kind})"
