"""Settings of a verb are dataclass fields; this reads from them what `--help` and error messages need.

The meaning of a setting is the comment that ends its line, or a "name: meaning." in its class's docstring.
Constraints that a type cannot say are added with `one_of`, `at_least` and `variant`. Config dataclasses must
not be frozen: hydra writes overrides into them.
"""

from __future__ import annotations

import ast
import inspect
import io
import math
import re
import textwrap
import tokenize
import typing
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass, replace
from typing import Any

from robo_rl.core.settings import at_least, fraction, one_of

__all__ = ["REQUIRED", "at_least", "fraction", "one_of", "settings", "variant", "variants"]

REQUIRED: Any = "???"  # what hydra calls a value that the user must give
WORDS = {int: "whole number", float: "number", bool: "true or false", str: "text"}


def variant(options: Mapping[str, type]) -> Any:
    """A group of settings in several variants, each a dataclass with a field `name`; the first is the
    default.

    `net: NetConfig = variant({"mlp": MlpConfig, "unet1d": UnetConfig})` gives `net=unet1d net.kernel=3`.
    """
    return field(default_factory=next(iter(options.values())), metadata={"variants": dict(options)})


@dataclass(frozen=True)
class Setting:
    """One key of a verb, as the user sees it."""

    key: str  # dotted, e.g. "net.width"
    type: Any
    default: Any
    meaning: str
    choices: tuple[str, ...] = ()
    minimum: float | None = None
    maximum: float | None = None  # only beside a minimum

    @property
    def required(self) -> bool:
        return isinstance(self.default, str) and self.default == REQUIRED

    @property
    def optional(self) -> bool:
        return type(None) in typing.get_args(self.type)

    @property
    def plain_type(self) -> Any:
        """The type without `| None`."""
        rest = [part for part in typing.get_args(self.type) if part is not type(None)]
        return rest[0] if self.optional and len(rest) == 1 else self.type

    @property
    def type_words(self) -> str:
        """The type in a user's words, e.g. "whole number" or "[text, ...]"."""
        if self.choices:
            return " | ".join(self.choices)
        plain = self.plain_type
        if typing.get_origin(plain) is list:
            inner = typing.get_args(plain)[0]
            return f"[{WORDS.get(inner, str(inner))}, ...]"
        words = WORDS.get(plain, getattr(plain, "__name__", str(plain)))
        if self.minimum is None:
            return words
        if self.maximum is None:
            return f"{words} >= {self.minimum:g}"
        return f"{words} from {self.minimum:g} to {self.maximum:g}"

    def allows(self, value: Any) -> bool:
        """Is it within the limits, and finite where there are any? What is no number has none."""
        if self.minimum is None:
            return True
        return bool(self.minimum <= value < math.inf and (self.maximum is None or value <= self.maximum))

    @property
    def default_words(self) -> str:
        if self.required:
            return "required"
        if self.default is None:
            return "none"
        return str(self.default).lower() if isinstance(self.default, bool) else str(self.default)


def variants(schema: type) -> dict[str, dict[str, type]]:
    """Field -> its variants by name, for the fields made with `variant`."""
    return {
        item.name: dict(item.metadata["variants"]) for item in fields(schema) if "variants" in item.metadata
    }


def settings(schema: type, prefix: str = "") -> dict[str, Setting]:
    """All settings of a schema by dotted key, nested dataclasses flattened, a class's own fields before
    inherited ones.

    Of a variant field, its name and the settings of every variant are there; a key of two is the first one's.
    """
    hints, texts = typing.get_type_hints(schema), meanings(schema)
    found: dict[str, Setting] = {}
    for item in sorted(fields(schema), key=lambda item: _depth(schema, item.name)):
        key, kind, text = prefix + item.name, hints[item.name], texts.get(item.name, "")
        if options := item.metadata.get("variants"):
            found[key] = Setting(key, str, next(iter(options)), text, tuple(options))
            found |= _variant_settings(key, options)
        elif isinstance(kind, type) and is_dataclass(kind):
            found |= settings(kind, key + ".")
        else:
            limits = item.metadata.get("minimum"), item.metadata.get("maximum")
            found[key] = Setting(key, kind, _default(item), text, item.metadata.get("choices", ()), *limits)
    return found


def _variant_settings(key: str, options: Mapping[str, type]) -> dict[str, Setting]:
    """The settings of every variant; the meaning says which variants have it, where not all do."""
    inner = {option: settings(kind, key + ".") for option, kind in options.items()}
    found: dict[str, Setting] = {}
    for setting in (setting for group in inner.values() for setting in group.values()):
        owners = [option for option, group in inner.items() if setting.key in group]
        only = "" if len(owners) == len(options) else f"[{', '.join(owners)}] "
        found.setdefault(setting.key, replace(setting, meaning=(only + setting.meaning).strip()))
    del found[f"{key}.name"]  # chosen by the key itself
    return found


def meanings(schema: type) -> dict[str, str]:
    """Field name -> the comment that ends its line, or what the docstring says of it; inherited fields
    included.
    """
    found: dict[str, str] = {}
    for cls in reversed(schema.__mro__):
        if is_dataclass(cls):
            doc = " ".join((cls.__doc__ or "").split())
            for name in inspect.get_annotations(cls):
                if match := re.search(rf"(?:^|[ ;,.]){name}: ([^.;]*)", doc):
                    found[name] = match[1]
            found |= _comments(cls)
    return found


def _comments(cls: type) -> dict[str, str]:
    source = textwrap.dedent(inspect.getsource(cls))
    comments = {
        token.start[0]: token.string.lstrip("# ")
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    }
    body = typing.cast("ast.ClassDef", ast.parse(source).body[0]).body
    return {
        node.target.id: comments[node.end_lineno]
        for node in body
        if isinstance(node, ast.AnnAssign)
        and isinstance(node.target, ast.Name)
        and node.end_lineno in comments
    }


def _depth(schema: type, name: str) -> int:
    """How far up the class hierarchy a field was written."""
    return next(i for i, cls in enumerate(schema.__mro__) if name in inspect.get_annotations(cls))


def _default(item: Field[Any]) -> Any:
    return item.default if item.default_factory is MISSING else item.default_factory()
