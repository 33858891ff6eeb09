"""Sentences with arguments as `ros2 launch` takes them: `arm:=true` for `arm=true`."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping

VARIABLE = "ROBO_RL_LAUNCH_ARGUMENTS"  # of a node that `ros2 launch` started: names, with commas between
_VALUE = (
    r"\[[^\]]*\]|'[^']*'|\"[^\"]*\"|<[^>]*>|\.\.\.|\S*[^\s.,;:!?]|"  # without the sentence's own punctuation
)
_UNQUOTED = (
    rf"\brobo-rl(?: [\w/-]+(?![\w=./-])){{0,2}}(?: (?:--?[a-z][\w-]*(?!\S*=)|[\w.]+=(?:{_VALUE})|\.\.\.))*"
)
_COMMAND = rf"(?s:(?<=`)robo-rl [^`]*|{_UNQUOTED})"


def as_launch_arguments(sentence: str, names: Collection[str]) -> str:
    """A text with its arguments as `ros2 launch` takes them.

    names: of the arguments. A command of robo-rl stays as it is, up to the backtick behind it or its last
    setting; so do the options in the name of an environment and the names in a path.
    """
    argument = rf"(?<![\w.:/?&,=-])({'|'.join(map(re.escape, names))})=(?!=)"
    return re.sub(
        rf"{_COMMAND}|{argument}", lambda found: f"{found[1]}:=" if found[1] else found[0], sentence
    )


def launch_variables(names: Collection[str]) -> dict[str, str]:
    """Environment variables by which a node knows that `ros2 launch` started it with these arguments."""
    return {VARIABLE: ",".join(names)}


def as_started(sentence: str, environment: Mapping[str, str] = os.environ) -> str:
    """A node's sentence with the arguments of `ros2 launch` as it takes them, if that started the node."""
    names = environment.get(VARIABLE)
    return as_launch_arguments(sentence, names.split(",")) if names else sentence
