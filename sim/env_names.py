"""Names of environments: "<suite>/<task>", where the task may carry options, as in "race:track=splits"."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import yaml

from robo_rl.core.errors import ConfigError
from sim.instructed_env import OPTION


def read_options(task: str) -> tuple[str, dict[str, Any]]:
    """Task and options of a name: ("race", {"track": "splits"}) of "race:track=splits". An instruction is
    text; other values are read as YAML. Raises ConfigError for one that YAML cannot read, and as
    `options_text`.
    """
    bare, options = options_text(task)
    return bare, {key: text if key == OPTION else _value(key, text) for key, text in options.items()}


def options_text(task: str) -> tuple[str, dict[str, str]]:
    """Task and options of a name, with the text of each option. Raises ConfigError for an option without a
    value, or given twice.
    """
    bare, _, words = task.partition(":")
    split = [word.partition("=") for word in words.split(",") if word.strip()]
    pairs = [(key.strip(), value.strip()) for key, _, value in split]
    keys = [key for key, _ in pairs]
    if not all(key and (value or key == OPTION) for key, value in pairs):
        end = ". Commas separate options: leave them out of the instruction." if OPTION in keys else ""
        raise ConfigError(
            f"The options in '{task}' cannot be read; expected, for example: race:track=splits,history=4{end}"
        )
    for key in keys:
        if keys.count(key) > 1:
            raise ConfigError(f"'{task}' gives the option {key} {keys.count(key)} times. Give it once.")
    return bare, dict(pairs)


def _value(option: str, text: str) -> Any:
    """The text read as YAML. Raises ConfigError where YAML cannot read it, or reads the end as a comment."""
    try:
        if not re.search(r"(^|\s)#", text):
            return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError):  # ValueError: a date that does not exist
        pass
    raise ConfigError(
        f"The option {option}={text!r} cannot be read; expected a word, a number, true or false. Correct the "
        "value."
    )


def same_env(first: str, second: str) -> bool:
    """True if two names differ at most in the order of their options."""
    return _unordered(first) == _unordered(second)


def _unordered(name: str) -> tuple[str, list[str]]:
    """The name without its options, and the text of the options, sorted."""
    bare, _, words = name.partition(":")
    return bare, sorted(word.strip() for word in words.split(","))


def join_options(options: Mapping[str, Any]) -> str:
    """The options as they follow the colon in a name."""
    return ",".join(f"{key}={each}" for key, each in options.items())
