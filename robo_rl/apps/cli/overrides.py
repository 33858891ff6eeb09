"""What a user typed, `key=value`: checked against the settings there are, and put into hydra's grammar."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches

from robo_rl.conf.fields import Setting
from robo_rl.core.errors import ConfigError, UnknownNameError


def split(verb: str, override: str, known: Iterable[str], of_tasks: Sequence[str] = ()) -> tuple[str, str]:
    """Key and value. Raises ConfigError when it is not `key=value`, or when there is no such key.

    `of_tasks`: keys that only mean something beside task=, where they have been taken out before.
    """
    key, equals, value = override.partition("=")
    key = key.lstrip("+")  # hydra's "append": here every key exists already
    if override.startswith("-") or not equals:
        hint = nearest(key.strip("-"), known, "=...")
        raise ConfigError(
            f"Found '{override}', expected a setting written key=value.{hint} See: robo-rl {verb} --help"
        )
    known = list(known)
    if key in of_tasks and key not in known:  # `run` has a robot of its own
        raise ConfigError(
            f"{key}={value} says something of a task: give task=... too. See: robo-rl {verb} --help"
        )
    if key not in known:
        hint = nearest(key, [*known, *of_tasks, *(["task"] if of_tasks else [])])
        raise ConfigError(f"robo-rl {verb} has no setting '{key}'.{hint} See: robo-rl {verb} --help")
    return key, value


def for_hydra(key: str, value: str, known: Mapping[str, Setting], groups: Mapping[str, Sequence[str]]) -> str:
    """The override in hydra's grammar; text is quoted, so that any path or name passes."""
    if key in groups:
        if value not in groups[key]:
            raise UnknownNameError(key, value, groups[key])
    elif known[key].optional and value in ("none", "null"):
        value = "null"
    elif known[key].plain_type is str:
        value = quoted(value)
    return f"{key}={value}"


def quoted(text: str) -> str:
    """Hydra's quoting: a backslash is literal, unless a quote follows."""
    text = text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"" else text
    return "'" + re.sub(r"(\\*)('|$)", lambda found: found[1] * 2 + ("\\'" if found[2] else ""), text) + "'"


# A word of another verb -> the words for the same thing, of which the verb at hand has one.
SYNONYMS = {
    "steps": ("updates", "method.env_steps"),
    "updates": ("steps", "method.env_steps"),
    "env_steps": ("updates", "steps"),
    "epochs": ("updates", "steps", "method.env_steps"),
    "episodes": ("eval_episodes",),
    "eval_episodes": ("episodes",),
    "eval_flights": ("eval_episodes", "episodes"),
}


def nearest(name: str, known: Iterable[str], suffix: str = "") -> str:
    """Say " Did you mean ...?", or nothing. The last part of a dotted key is enough: "lr" finds
    "learner.lr".
    """
    names = list(known)
    if (same := next((word for word in SYNONYMS.get(name, ()) if word in names), None)) is not None:
        return f" Did you mean '{same}{suffix}'?"
    leaves = {key.rpartition(".")[2]: key for key in reversed(names)}
    close = get_close_matches(name, names, n=1, cutoff=0.6) or [
        leaves[leaf] for leaf in get_close_matches(name.rpartition(".")[2], leaves, n=1, cutoff=0.6)
    ]
    return f" Did you mean '{close[0]}{suffix}'?" if close else ""
