"""Types of the settings in the file of a driver or a teleoperation device, by its maker's annotations."""

from __future__ import annotations

import inspect
import math
import types
import typing
from collections.abc import Callable, Sequence
from typing import Any

# A text such as n would count as true, and a text such as 100 would end the driver in its first division.
WORDS = {
    bool: "true or false",
    float: "a finite number, without quotes",
    int: "a whole number, without quotes",
    str: "a text, in quotes if it could be read as a number",
}


def expected_types(maker: Callable[..., Any]) -> dict[str, Any]:
    """Name of each argument of a driver's class, or of another maker -> its annotation."""
    return {
        name: item.annotation for name, item in inspect.signature(maker, eval_str=True).parameters.items()
    }


def wrong_type(value: Any, kind: Any) -> str:
    """What was expected instead of this value, in words; empty if it is of this kind.

    Only bool, int, float, str, sequences of one of them, and unions with None are judged; a value for another
    kind is left to the driver.
    """
    if typing.get_origin(kind) is Sequence and (each := typing.get_args(kind)[0]) in WORDS:
        if isinstance(value, list | tuple):
            return next((f"in its list {wrong}" for item in value if (wrong := wrong_type(item, each))), "")
        return f"a list, and in it {WORDS[each]}"
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
