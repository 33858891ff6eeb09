"""YAML text of a ROS message, with long arrays, strings and bytes shortened.

Without shortening, the text is valid YAML that contains the whole message; floats are exact.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import MISSING, fields, is_dataclass
from typing import Any

import numpy as np

CUT = 16  # elements of an array that are printed
TEXT_CUT = 240  # characters of a string that are printed
BARE = re.compile(r"[A-Za-z/][\w/.-]*( [\w/.-]+)*", re.ASCII)  # strings that need no quotes in YAML ...
WORDS = {"true", "false", "yes", "no", "on", "off", "null", "y", "n"}  # ... except these


def readable(message: Any, cut: int | None = CUT) -> str:
    """YAML text of a ROS message.

    cut: number of elements of an array or list that are printed; None prints everything, strings included.
    """
    return "\n".join(_fields(message, cut, "")) or "{}"


def _fields(message: Any, cut: int | None, indent: str) -> Iterator[str]:
    # Fields with a default are constants and the name of the type.
    for field in (field for field in fields(message) if field.default is MISSING):
        yield from _entry(f"{indent}{field.name}:", getattr(message, field.name), cut, indent + "  ")


def _entry(head: str, value: Any, cut: int | None, indent: str) -> Iterator[str]:
    """One field: after its name, or below it for a message or a list of messages."""
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
    """A value on one line."""
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
    text = str(value)  # the shortest text that gives the same float
    return text if "." in text else text.replace("e", ".0e")  # YAML parses 1e-05 as a string


def _text(text: str) -> str:
    if BARE.fullmatch(text) and text.lower() not in WORDS:
        return text
    quoted = json.dumps(text, ensure_ascii=False)
    # Escape control characters, which the terminal would execute.
    return "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in quoted)
