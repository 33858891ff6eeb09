"""Nested settings as dotted keys, with values as typed on the command line."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any


def flat(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Dotted keys with their values as typed on the command line; `net: {name: mlp}` chooses `net=mlp`."""
    for key, value in tree.items():
        if isinstance(value, dict) and all(isinstance(each, str) for each in value):
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, as_typed(value)


def as_typed(value: Any) -> str:
    """A YAML value in the words of the command line."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{','.join(_element(each) for each in value)}]"
    return str(value)


def _element(value: Any) -> str:
    return quoted(value) if isinstance(value, str) else as_typed(value)


def quoted(text: str) -> str:
    """Hydra's quoting: a backslash is literal, unless a quote follows."""
    text = text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"" else text
    return "'" + re.sub(r"(\\*)('|$)", lambda found: found[1] * 2 + ("\\'" if found[2] else ""), text) + "'"
