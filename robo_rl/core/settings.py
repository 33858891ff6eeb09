"""Settings as dataclass fields: default, help text and limits are declared together."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

from robo_rl.core.errors import ConfigError

_MUTABLE = (list, dict, set)
# May differ between a run and its continuation; `out` is the folder itself, which may have been moved.
FREE_KEYS = frozenset({"out", "resume", "overwrite", "device", "num_workers"})
_TRAINING = {"threads", "log_every", "checkpoint_every"}
_FREE = {  # further ones of a verb
    "train": _TRAINING | {"keep_checkpoints", "launcher", "processes", "shard"},
    "pretrain": _TRAINING,
    # a checkpoint of actors itself names their number
    "finetune": {
        *("max_wall_s", "launcher", "actors", "ray_address", "block_steps", "staleness", "object_store_mb")
    },
    "distill": {"checkpoint_every"},
    "fly": {"eval_episodes", "eval_s", "video", "checkpoint_every"},
}


def free_keys(verb: str) -> frozenset[str]:
    """Settings of a verb that may differ between a run and its continuation."""
    return FREE_KEYS | _FREE.get(verb, frozenset())


@dataclass(frozen=True)
class Limits:
    """Permitted range of a number. NaN is never permitted; infinity only without limits."""

    at_least: float | None = None
    at_most: float | None = None
    above: float | None = None
    below: float | None = None

    def allow(self, value: float) -> bool:
        """True for a finite number within the limits; without limits, for any number but NaN."""
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
        """The limits in words, e.g. ">= 1" or "from 0 to 1"; empty without limits."""
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
    """Field with a default, a line of `--help` and limits, which hold for each element of a list.

    A list or dict as default is copied for every instance.
    """
    metadata = {"help": help, "limits": Limits(at_least, at_most, above, below)}
    if isinstance(default, _MUTABLE):
        return field(default_factory=lambda: copy.deepcopy(default), metadata=metadata)
    return field(default=default, metadata=metadata)


def one_of(*choices: str, help: str = "") -> Any:
    """A text setting with a closed set of values; the first is the default."""
    return field(default=choices[0], metadata={"help": help, "choices": choices})


def limits_of(metadata: Mapping[str, Any]) -> Limits:
    """Limits of a field, from its metadata; no limits for a plain field."""
    limits = metadata.get("limits", Limits())
    assert isinstance(limits, Limits)
    return limits


def within(value: Any, limits: Limits) -> bool:
    """True unless the value is, or contains, a number outside the limits."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        return all(within(each, limits) for each in value)
    return isinstance(value, bool) or not isinstance(value, int | float) or limits.allow(value)


def finite_words(value: Any) -> str:
    """The words ", and finite" for a value that is or holds NaN or infinity; empty for other values, which
    their limits refuse.
    """
    parts = value if isinstance(value, Sequence) and not isinstance(value, str) else [value]
    numbers = (part for part in parts if isinstance(part, float))
    return "" if all(map(math.isfinite, numbers)) else ", and finite"


def check_settings(config: Any, prefix: str = "") -> None:
    """Raise ConfigError that names the first setting of a config dataclass, also of nested ones, outside its
    limits.

    The command line checks its own settings; this checks configurations that are built in Python.
    """
    for item in fields(config):
        name, value = prefix + item.name, getattr(config, item.name)
        if is_dataclass(value):
            check_settings(value, name + ".")
        elif (choices := item.metadata.get("choices")) and value not in choices:
            raise ConfigError(f"{name}={value} cannot be used, expected: {' | '.join(choices)}.")
        elif not within(value, limits := limits_of(item.metadata)):
            parts = value if isinstance(value, list | tuple) else [value]
            kind = "a whole number" if all(isinstance(part, int) for part in parts) else "a number"
            raise ConfigError(
                f"{name}={value} cannot be used, expected: {f'{kind} {limits}'.strip()}{finite_words(value)}."
            )
