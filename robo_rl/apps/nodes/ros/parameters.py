"""Settings of a node as ROS 2 parameters: values that ROS gives, and what `ros2 param` shows."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args, get_origin

import yaml

from hardware.bus.parameters import Parameter
from robo_rl.conf.fields import Setting, settings
from robo_rl.conf.node import NodeConfig
from robo_rl.core.errors import ConfigError
from robo_rl.core.files.yaml_error import yaml_words
from robo_rl.core.text.nearest import nearest

# ROS has its own ways to give these: `-r __node:=`, `-r __ns:=`, and the choice of the bus itself.
NO_PARAMETERS = tuple(item.name for item in fields(NodeConfig))
GIVES = ("-p", "--param", "--params-file")  # arguments within --ros-args


def parameters_of(config: Any) -> list[Parameter]:
    """The settings of a node with the values in use."""
    return [
        Parameter(each.key, _kind(each), getattr(config, each.key), each.meaning, _constraints(each))
        for each in settings(type(config)).values()
        if each.key not in NO_PARAMETERS
    ]


def with_parameters(
    schema: type, words: Sequence[str], given: Mapping[str, Any], warn: Callable[[str], None]
) -> list[str]:
    """The `key=value` words, replaced and completed by values from ROS.

    Parameters that are no settings are reported, not refused: one file may hold those of several nodes.
    """
    known = {key: each for key, each in settings(schema).items() if key not in NO_PARAMETERS}
    for name in given:
        if name not in known:
            close = nearest(name, list(known), 1)
            hint = f" Did you mean '{close[0]}'?" if close else ""
            warn(f"The parameter '{name}' is no setting of this node and has no effect.{hint}")
    taken = {name: value for name, value in given.items() if name in known}
    kept = [word for word in words if word.partition("=")[0] not in taken]
    return kept + [f"{name}={_text(value, _kind(known[name]))}" for name, value in taken.items()]


def parameters_in_file(file: Path, node: str) -> dict[str, Any]:
    """Parameters of the node `/namespace/name` in a YAML file of ROS; later entries win, as in ROS.

    Raises ConfigError for a file that is not valid YAML.
    """
    try:
        data = yaml.safe_load(file.read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"params_file={file} cannot be read, {yaml_words(error)}.") from error
    found: dict[str, Any] = {}
    for pattern, given in _entries(data, ""):
        if re.fullmatch(pattern, node):
            found |= given
    return found


def _entries(data: Any, pattern: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """(pattern of nodes' names, their parameters). * stands for one part of a name, ** for any number."""
    for key, value in data.items() if isinstance(data, Mapping) else ():
        if key == "ros__parameters" and isinstance(value, Mapping):
            yield pattern, value
        elif isinstance(value, Mapping):
            parts = {"*": "/[^/]+", "**": "(/[^/]+)*"}
            names = [part for part in str(key).split("/") if part]
            yield from _entries(value, pattern + "".join(parts.get(n, "/" + re.escape(n)) for n in names))


def refuse_parameters(ros_words: Sequence[str]) -> None:
    """Raise ConfigError for parameters in the arguments after --ros-args, which only rclpy reads."""
    found = next((word for word in ros_words if word.split(":=")[0] in GIVES), None)
    if found is not None:
        raise ConfigError(
            f"Found '{found}' after --ros-args, but this node runs without rclpy, which reads it. Write the "
            "setting as key=value, or use bus=rclpy."
        )


def _kind(setting: Setting) -> str:
    """Key of hardware.bus.parameters.KINDS."""
    plain = setting.plain_type
    return f"list[{get_args(plain)[0].__name__}]" if get_origin(plain) is list else str(plain.__name__)


def _constraints(setting: Setting) -> str:
    return setting.type_words + (" or none" if setting.optional else "")


def _text(value: Any, kind: str) -> str:
    """A value from YAML as it is written on the command line.

    `ros2 param dump` writes null for a setting without a value and for an empty list; rclpy reads it as text.
    """
    if value is None or value == "null":
        return "[]" if kind.startswith("list") else "null"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "[" + ",".join(_text(each, "") for each in value) + "]"
    return str(value).lower() if isinstance(value, bool) else str(value)
