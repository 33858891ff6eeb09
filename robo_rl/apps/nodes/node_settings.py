"""Settings of a node from `key=value` words, without hydra, so that a node starts fast."""

from __future__ import annotations

import typing
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from robo_rl.conf.fields import Setting, settings
from robo_rl.core.errors import ConfigError
from robo_rl.core.settings import finite_words
from robo_rl.core.text.nearest import nearest

T = TypeVar("T")
RENAMED = {"asks": "recorder_buttons"}  # earlier name of a setting -> its name
_TRUTH = {
    "true": True,
    "yes": True,
    "on": True,
    "1": True,
    "false": False,
    "no": False,
    "off": False,
    "0": False,
}


def parse_settings(node: str, words: Sequence[str], schema: type[T]) -> T:
    """An instance of `schema` with the `key=value` words applied.

    Raises ConfigError, with the key and what to do, for a mistyped key, a value of the wrong type or out of
    range, a key given twice and a required setting that is missing.
    """
    known, program = settings(schema), f"python -m robo_rl.apps.node {node}"
    values: dict[str, Any] = {}
    for word in words:
        key, text = _split(program, word, known)
        if key in values:
            before = next(first for first in words if first.startswith(f"{key}="))
            raise ConfigError(f"{key} is given twice, found {before} and {word}. Give it once.")
        values[key] = _value(known[key], text)
    for key, setting in known.items():
        if setting.required and key not in values:
            about = f" ({setting.meaning})" if setting.meaning else ""
            raise ConfigError(f"{program} needs {key}=...{about}. See: {program} --help")
    return schema(**values)


def _split(program: str, word: str, known: typing.Iterable[str]) -> tuple[str, str]:
    """Key and value of one word."""
    key, equals, text = word.partition("=")
    see = f"See: {program} --help"
    if word.startswith("-") or not equals:
        hint = _hint(key.strip("-"), known, "=...")
        raise ConfigError(f"Found '{word}', expected a setting written key=value.{hint} {see}")
    if key not in known:
        raise ConfigError(f"{program} has no setting '{key}'.{_hint(key, known)} {see}")
    return key, text


def _value(setting: Setting, text: str) -> Any:
    """Text as the setting's type, within its limits."""
    if setting.optional and text in ("none", "null"):
        return None
    try:
        value = _parsed(setting.plain_type, text)
    except ValueError:
        nothing = " or none" if setting.optional else ""
        raise ConfigError(
            f"{setting.key}={text} cannot be used, expected: {setting.type_words}{nothing}."
        ) from None
    if setting.choices and value not in setting.choices:
        raise ConfigError(
            f"{setting.key}={text} cannot be used, expected: {setting.type_words}."
            f"{_hint(text, setting.choices)}"
        )
    if not setting.allows(value):
        expected = f"{setting.type_words}{finite_words(value)}"
        raise ConfigError(f"{setting.key}={text} cannot be used, expected: {expected}.")
    return value


def _parsed(kind: Any, text: str) -> Any:
    """Text as a value of this type. Raises ValueError for other text."""
    if typing.get_origin(kind) is list:
        if not text:
            return []
        if not (text.startswith("[") and text.endswith("]")):
            raise ValueError(text)
        parts = [part.strip() for part in text[1:-1].split(",")]
        return [] if parts == [""] else [_parsed(typing.get_args(kind)[0], part) for part in parts]
    if kind is bool:
        if text.lower() not in _TRUTH:
            raise ValueError(text)
        return _TRUTH[text.lower()]
    parsers: dict[Any, Callable[[str], Any]] = {int: int, float: float, str: _unquoted}
    return parsers[kind](text)


def _unquoted(text: str) -> str:
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"" else text


def _hint(name: str, known: typing.Iterable[str], suffix: str = "") -> str:
    known = list(known)
    close = [RENAMED[name]] if RENAMED.get(name) in known else nearest(name, known, 1)
    return f" Did you mean '{close[0]}{suffix}'?" if close else ""
