"""Nested settings as dotted keys, with values as typed on the command line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any


def flat(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Dotted keys with their values as typed on the command line; `net: {name: mlp}` chooses `net=mlp`."""
    for key, value in tree.items():
        if isinstance(value, dict) and all(isinstance(each, str) for each in value):
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, as_typed(value)


def keys_in_file(words: Iterable[str]) -> list[str]:
    """Dotted keys in the YAML file that `config=` names among the words of a command; none without such a
    file.
    """
    import yaml

    file = next((word.partition("=")[2] for word in words if word.startswith("config=")), None)
    try:
        found = None if file is None else yaml.safe_load(Path(file).expanduser().read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError):  # the command line has reported it
        return []
    return [key for key, _ in flat(found)] if isinstance(found, dict) else []


def as_typed(value: Any) -> str:
    """A YAML value in the words of the command line."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{','.join(_element(each) for each in value)}]"
    return str(value)


def comma_parts(text: str) -> list[str]:
    """The text divided at its commas, except those in quotes or brackets, without spaces around the parts.

    A quote counts at the beginning of a part or of an element in brackets, so that apostrophes are text.
    Text with a quote or bracket that is not closed is not divided.
    """
    parts, part, depth, quote = [], "", 0, ""
    for at, each in enumerate(text):
        before = text[:at].rstrip(" ")[-1:]
        if quote:
            escaped = (at - len(text[:at].rstrip("\\"))) % 2 == 1
            quote = "" if each == quote and not escaped else quote
        elif each in "'\"" and before in ("", *",[({"):
            quote = each
        elif each in "[({":
            depth += 1
        elif each in "])}":
            depth -= 1
        elif each == "," and depth == 0:
            parts.append(part.strip())
            part = ""
            continue
        part += each
    return [text] if quote or depth else [*parts, part.strip()]


def is_quoted(text: str) -> bool:
    """True for text in quotes."""
    return len(text) > 1 and text[0] == text[-1] and text[0] in "'\""


def _element(value: Any) -> str:
    return quoted(value) if isinstance(value, str) else as_typed(value)


def quoted(text: str) -> str:
    """Hydra's quoting: a backslash is literal, unless a quote follows."""
    text = text[1:-1] if is_quoted(text) else text
    return "'" + re.sub(r"(\\*)('|$)", lambda found: found[1] * 2 + ("\\'" if found[2] else ""), text) + "'"
