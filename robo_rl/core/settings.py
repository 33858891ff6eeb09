"""Settings as dataclass fields: default, help text and limits of each are written in one place."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

from robo_rl.core.errors import ConfigError

_MUTABLE = (list, dict, set)


@dataclass(frozen=True)
class Limits:
    """Values that a number may have. NaN is never allowed, infinity only where there are no limits."""

    at_least: float | None = None
    at_most: float | None = None
    above: float | None = None
    below: float | None = None

    def allow(self, value: float) -> bool:
        """True for a finite number within the limits, or any but NaN where there are none."""
        if self == Limits():
            return not math.isnan(value)
        return (
            math.isfinite(value)
            and (self.at_least is None or value >= self.at_least)
            and (self.at_most is None or value <= self.at_most)
            and (self.above is None or value > self.above)
            and (self.below is None or value < self.below)
        )

    def __str__(self) -> str:
        """The limits in words, e.g. ">= 1" or "from 0 to 1"; empty where there are none."""
        if self.at_least is not None and self.at_most is not None:
            return f"from {self.at_least:g} to {self.at_most:g}"
        bounds = ((">=", self.at_least), (">", self.above), ("<=", self.at_most), ("<", self.below))
        return " and ".join(f"{sign} {bound:g}" for sign, bound in bounds if bound is not None)


def setting(
    default: Any,
    help: str = "",
    *,
    at_least: float | None = None,
    at_most: float | None = None,
    above: float | None = None,
    below: float | None = None,
) -> Any:
    """A field with its default, its line of `--help` and its limits, which hold for each element of a list.

    A list or dict given as default is copied for every instance.
    """
    metadata = {"help": help, "limits": Limits(at_least, at_most, above, below)}
    if isinstance(default, _MUTABLE):
        return field(default_factory=lambda: copy.deepcopy(default), metadata=metadata)
    return field(default=default, metadata=metadata)


def one_of(*choices: str, help: str = "") -> Any:
    """A text setting with a closed set of values; the first is the default."""
    return field(default=choices[0], metadata={"help": help, "choices": choices})


def limits_of(metadata: Mapping[str, Any]) -> Limits:
    """Limits of a field, from its metadata; none where it is a plain field."""
    limits = metadata.get("limits", Limits())
    assert isinstance(limits, Limits)
    return limits


def within(value: Any, limits: Limits) -> bool:
    """True unless the value is a number, or holds numbers, that the limits do not allow."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        return all(within(each, limits) for each in value)
    return isinstance(value, bool) or not isinstance(value, int | float) or limits.allow(value)


def check_settings(config: Any, prefix: str = "") -> None:
    """Raise ConfigError naming the first setting of a config dataclass, nested ones included, outside its
    limits.

    The command line checks its own settings; this one checks configurations that are built in Python.
    """
    for item in fields(config):
        name, value = prefix + item.name, getattr(config, item.name)
        if is_dataclass(value):
            check_settings(value, name + ".")
        elif (choices := item.metadata.get("choices")) and value not in choices:
            raise ConfigError(f"{name}={value} cannot be used, expected: {' | '.join(choices)}.")
        elif not within(value, limits := limits_of(item.metadata)):
            raise ConfigError(
                f"{name}={value} cannot be used, expected: {f'a finite number {limits}'.strip()}."
            )
