"""Types of the settings in a driver's file, by the annotations of the driver's arguments."""

from __future__ import annotations

import inspect
import math
import types
import typing
from collections.abc import Callable
from typing import Any

# A text such as n would count as true, and a text such as 100 would end the driver in its first division.
WORDS = {
    bool: "true or false",
    float: "a finite number, without quotes",
    int: "a whole number, without quotes",
    str: "a text, in quotes if it could be read as a number",
}


def expected_types(maker: Callable[..., Any]) -> dict[str, Any]:
    """Name of each argument of a driver's class -> its annotation."""
    return {
        name: item.annotation for name, item in inspect.signature(maker, eval_str=True).parameters.items()
    }


def wrong_type(value: Any, kind: Any) -> str:
    """What was expected instead of this value, in words; empty if it is of this kind.

    Only bool, int, float, str and unions of them with None are judged; a value for another kind is left to
    the driver.
    """
    options = typing.get_args(kind) if _is_union(kind) else (kind,)
    if not all(option in WORDS or option is type(None) for option in options):
        return ""
    if any(_is(value, option) for option in options):
        return ""
    return " or ".join(WORDS.get(option, "nothing") for option in options)


def _is_union(kind: Any) -> bool:
    return typing.get_origin(kind) in (typing.Union, types.UnionType)


def _is(value: Any, kind: type) -> bool:
    if isinstance(value, bool) or kind is bool:
        return kind is bool and isinstance(value, bool)
    if kind is float:
        return isinstance(value, int | float) and math.isfinite(value)
    return isinstance(value, kind)
