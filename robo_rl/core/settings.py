"""Limits of settings, written where the setting is: dataclass fields that say what values they take."""

from __future__ import annotations

import math
from dataclasses import field, fields, is_dataclass
from typing import Any

from robo_rl.core.errors import ConfigError


def one_of(*choices: str) -> Any:
    """A text setting with a closed set of values; the first is the default."""
    return field(default=choices[0], metadata={"choices": choices})


def at_least(minimum: float, default: Any) -> Any:
    """A number that must not be below `minimum`."""
    return field(default=default, metadata={"minimum": minimum})


def fraction(default: float, least: float = 0.0) -> Any:
    """A number from `least` to 1."""
    return field(default=default, metadata={"minimum": least, "maximum": 1.0})


def check_settings(config: Any, prefix: str = "") -> None:
    """Raise ConfigError naming the first setting of a config dataclass, nested ones included, outside its
    limits.

    The command line checks its own; this is for whoever builds a config in Python.
    """
    for item in fields(config):
        name, value = prefix + item.name, getattr(config, item.name)
        if is_dataclass(value):
            check_settings(value, name + ".")
        elif (choices := item.metadata.get("choices")) and value not in choices:
            raise ConfigError(f"{name}={value} cannot be used, expected: {' | '.join(choices)}.")
        minimum, maximum = item.metadata.get("minimum"), item.metadata.get("maximum")
        if minimum is None or value is None:
            continue
        if not minimum <= value < math.inf or (maximum is not None and value > maximum):
            bounds = f">= {minimum:g}" if maximum is None else f"from {minimum:g} to {maximum:g}"
            raise ConfigError(f"{name}={value} cannot be used, expected: a finite number {bounds}.")
