"""Settings of a node as ROS 2 parameters, the same on every bus that can show them.

A node's settings do not change while it runs, so all parameters are read-only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

# rcl_interfaces/msg/ParameterType
KINDS = {"bool": 1, "int": 2, "float": 3, "str": 4, "list[int]": 7, "list[float]": 8, "list[str]": 9}
READ_ONLY = "this setting is read when the node starts: restart the node with another value"


@dataclass(frozen=True, slots=True)
class Parameter:
    """One setting. value: in use; None where it has none."""

    name: str
    kind: str  # a key of KINDS
    value: Any
    description: str
    constraints: str = ""  # values that are allowed, in words


@runtime_checkable
class ParameterBus(Protocol):
    """Bus that shows the settings of its node, for `ros2 param`."""

    def given_parameters(self) -> Mapping[str, Any]:
        """Values that ROS gives this node by `--ros-args -p` or `--params-file`."""
        ...

    def show_parameters(self, parameters: Sequence[Parameter]) -> None:
        """Offer the parameters. Call it once."""
        ...
