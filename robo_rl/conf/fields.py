"""Fields of settings dataclasses, and the information on them for `--help` and error messages.

`setting`, `one_of` and `variant` hold a setting's default, help text and limits. Config dataclasses must not
be frozen: hydra writes overrides into them.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass, replace
from typing import Any

from robo_rl.core.settings import Limits, limits_of, one_of, setting, within

__all__ = ["REQUIRED", "Setting", "logger_setting", "one_of", "setting", "settings", "variant", "variants"]

REQUIRED: Any = "???"  # hydra's marker of a missing required value
WORDS = {int: "whole number", float: "number", bool: "true or false", str: "text"}


def variant(options: Mapping[str, type], help: str = "") -> Any:
    """Group of settings in several variants, each a dataclass with a field `name`; the first is the default.

    `net: NetConfig = variant({"mlp": MlpConfig, "unet1d": UnetConfig})` gives `net=unet1d net.kernel=3`.
    """
    metadata = {"variants": options, "help": help}  # the table itself: a plugin may add a row
    return field(default_factory=next(iter(options.values())), metadata=metadata)


def logger_setting() -> Any:
    """`logger=` of the verbs that train."""
    return one_of(
        "tensorboard",
        "wandb",
        "mlflow",
        help="logger of the learning curves; metrics.jsonl is always written",
    )


@dataclass(frozen=True)
class Setting:
    """One key of a verb as shown to the user."""

    key: str  # dotted, e.g. "net.width"
    type: Any
    default: Any
    meaning: str
    choices: tuple[str, ...] = ()
    limits: Limits = Limits()

    @property
    def required(self) -> bool:
        return isinstance(self.default, str) and self.default == REQUIRED

    @property
    def optional(self) -> bool:
        return type(None) in typing.get_args(self.type)

    @property
    def plain_type(self) -> Any:
        """Type without `| None`."""
        rest = [part for part in typing.get_args(self.type) if part is not type(None)]
        return rest[0] if self.optional and len(rest) == 1 else self.type

    @property
    def type_words(self) -> str:
        """Type in words, e.g. "whole number" or "[text, ...]"."""
        return " | ".join(self.choices) if self.choices else _type_words(self.plain_type, self.limits)

    def allows(self, value: Any) -> bool:
        """False for a number outside the limits, or a list with one."""
        return within(value, self.limits)

    @property
    def default_words(self) -> str:
        if self.required:
            return "required"
        if self.default is None:
            return "none"
        if self.default == "":
            return "empty"
        return str(self.default).lower() if isinstance(self.default, bool) else str(self.default)


def _type_words(plain: Any, limits: Limits) -> str:
    if typing.get_origin(plain) is list:
        return f"[{_type_words(typing.get_args(plain)[0], limits)}, ...]"
    words = WORDS.get(plain, getattr(plain, "__name__", str(plain)))
    return f"{words} {limits}".strip()


def variants(schema: type) -> dict[str, dict[str, type]]:
    """Field -> its variants by name, for fields made with `variant`."""
    return {
        item.name: dict(item.metadata["variants"]) for item in fields(schema) if "variants" in item.metadata
    }


def settings(schema: type, prefix: str = "") -> dict[str, Setting]:
    """All settings of a schema by dotted key, with nested dataclasses flattened and own fields before
    inherited ones.

    A variant field yields its name and the settings of every variant; for a key shared by variants, those of
    the first.
    """
    hints = typing.get_type_hints(schema)
    found: dict[str, Setting] = {}
    for item in sorted(fields(schema), key=lambda item: _depth(schema, item.name)):
        key, kind, text = prefix + item.name, hints[item.name], item.metadata.get("help", "")
        if options := item.metadata.get("variants"):
            found[key] = Setting(key, str, next(iter(options)), text, tuple(options))
            found |= _variant_settings(key, options)
        elif isinstance(kind, type) and is_dataclass(kind):
            found |= settings(kind, key + ".")
        else:
            choices, limits = item.metadata.get("choices", ()), limits_of(item.metadata)
            found[key] = Setting(key, kind, _default(item), text, choices, limits)
    return found


def _variant_settings(key: str, options: Mapping[str, type]) -> dict[str, Setting]:
    """Settings of every variant. The meaning names the variants of a setting that only some have."""
    inner = {option: settings(kind, key + ".") for option, kind in options.items()}
    found: dict[str, Setting] = {}
    for each in (each for group in inner.values() for each in group.values()):
        owners = [option for option, group in inner.items() if each.key in group]
        only = "" if len(owners) == len(options) else f"[{', '.join(owners)}] "
        found.setdefault(each.key, replace(each, meaning=(only + each.meaning).strip()))
    del found[f"{key}.name"]  # chosen by the key itself
    return found


def _depth(schema: type, name: str) -> int:
    """Depth in the class hierarchy at which a field was declared."""
    return next(i for i, cls in enumerate(schema.__mro__) if name in inspect.get_annotations(cls))


def _default(item: Field[Any]) -> Any:
    return item.default if item.default_factory is MISSING else item.default_factory()
