"""A ROS message as text for people: YAML, with long arrays, texts and bytes cut short.

What is not cut is YAML to the letter: a program that reads it has the message again, floats to their last
bit.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import MISSING, fields, is_dataclass
from typing import Any

import numpy as np

CUT = 16  # elements of an array that are shown
TEXT_CUT = 240  # characters of a text that are shown
BARE = re.compile(r"[A-Za-z/][\w/.-]*( [\w/.-]+)*", re.ASCII)  # texts that YAML takes for themselves
WORDS = {
    "true",
    "false",
    "yes",
    "no",
    "on",
    "off",
    "null",
    "y",
    "n",
}  # which YAML takes for something else than text


def readable(message: Any, cut: int | None = CUT) -> str:
    """cut: how many elements of an array are shown, and of the messages in a list; None: everything, texts as
    well.
    """
    return "\n".join(_fields(message, cut, "")) or "{}"


def _fields(message: Any, cut: int | None, indent: str) -> Iterator[str]:
    own = [
        field for field in fields(message) if field.default is MISSING
    ]  # others are constants, and the type's name
    for field in own:
        yield from _entry(f"{indent}{field.name}:", getattr(message, field.name), cut, indent + "  ")


def _entry(head: str, value: Any, cut: int | None, indent: str) -> Iterator[str]:
    """One field: behind its name, or below it where it is a message or a list of them."""
    if is_dataclass(value):
        yield head
        yield from _fields(value, cut, indent)
    elif isinstance(value, list) and value and is_dataclass(value[0]):
        yield head
        for item in value[:cut]:
            first, *rest = _fields(item, cut, indent + "  ")
            yield f"{indent}- {first.lstrip()}"
            yield from rest
        if cut is not None and len(value) > cut:
            yield f"{indent}# and {len(value) - cut} more"
    else:
        yield f"{head} {_plain(value, cut)}"


def _plain(value: Any, cut: int | None) -> str:
    """What stands on one line."""
    if isinstance(value, str):
        long = cut is not None and len(value) > TEXT_CUT
        return f"{_text(value[:TEXT_CUT] + '...')}  # {len(value)} characters" if long else _text(value)
    if not isinstance(value, (list, np.ndarray)):
        return _number(value)
    if cut is None or len(value) <= cut:
        return f"[{', '.join(_plain(one, cut) for one in value)}]"
    if isinstance(value, np.ndarray) and value.dtype.itemsize == 1:
        return f"{len(value)} bytes"
    return f"[{', '.join(_plain(one, cut) for one in value[:cut])}, ...]  # {len(value)} values"


def _number(value: Any) -> str:
    if isinstance(value, (bool, np.bool_)):
        return str(bool(value)).lower()
    if not isinstance(value, (float, np.floating)):
        return str(value)
    if not np.isfinite(value):
        return ".nan" if np.isnan(value) else ".inf" if value > 0 else "-.inf"
    text = str(value)  # the shortest that is this float again
    return text if "." in text else text.replace("e", ".0e")  # YAML takes 1e-05 for text


def _text(text: str) -> str:
    if BARE.fullmatch(text) and text.lower() not in WORDS:
        return text
    quoted = json.dumps(text, ensure_ascii=False)
    return "".join(
        c if c.isprintable() else f"\\U{ord(c):08x}" for c in quoted
    )  # nothing that steers a terminal
