"""Fake launch and launch_ros: the documented signatures (Jazzy), and the behaviour of `ros2 launch`.

Deferred actions run when `visit` is called, as the launch service does it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any


@dataclass
class LaunchDescription:
    entities: Iterable[Any] = ()


@dataclass
class Context:
    """Values of arguments."""

    launch_configurations: dict[str, str] = field(default_factory=dict)


class DeclareLaunchArgument:
    def __init__(
        self,
        name: str,
        *,
        default_value: str | None = None,
        description: str | None = None,
        choices: list[str] | None = None,
    ) -> None:
        assert default_value is None or isinstance(default_value, str)
        assert description, f"{name} is not described"
        assert choices is None or default_value in choices
        self.name, self.default_value, self.description, self.choices = (
            name,
            default_value,
            description,
            choices,
        )

    def visit(self, context: Context) -> list[Any]:
        if self.name not in context.launch_configurations:
            if self.default_value is None:
                raise RuntimeError(f"Required launch argument '{self.name}' was not provided")
            context.launch_configurations[self.name] = self.default_value
        return []


class OpaqueFunction:
    def __init__(self, *, function: Callable[..., Any], args: Any = None, kwargs: Any = None) -> None:
        self.function, self.args, self.kwargs = function, args or [], kwargs or {}

    def visit(self, context: Context) -> list[Any]:
        return list(self.function(context, *self.args, **self.kwargs) or [])


class Shutdown:
    def __init__(self, *, reason: str = "reason not given") -> None:
        self.reason = reason


class LaunchConfiguration:
    def __init__(self, variable_name: str, *, default: Any = None) -> None:
        self.name = variable_name

    def perform(self, context: Context) -> str:
        return context.launch_configurations[self.name]


class Node:
    def __init__(
        self,
        *,
        executable: str,
        package: str | None = None,
        name: str | None = None,
        namespace: str | None = None,
        exec_name: str | None = None,
        parameters: Any = None,
        remappings: Any = None,
        ros_arguments: Any = None,
        arguments: list[str] | None = None,
        # from here on of ExecuteLocal
        output: str = "log",
        emulate_tty: bool = False,
        additional_env: dict[str, str] | None = None,
        sigterm_timeout: str = "5",
        sigkill_timeout: str = "5",
        on_exit: Any = None,
        respawn: bool = False,
        respawn_delay: float | None = None,
    ) -> None:
        assert namespace != "", "leave it out instead"
        assert float(sigterm_timeout) > 0.0
        self.exec_name = exec_name
        self.executable, self.package, self.name, self.namespace = executable, package, name, namespace
        self.remappings, self.parameters = remappings or [], list(parameters or [])
        self.arguments, self.on_exit, self.respawn, self.output = arguments or [], on_exit, respawn, output
        self.additional_env = additional_env or {}
        self.sigterm_timeout_s = float(sigterm_timeout)


@dataclass
class ParameterValue:
    """A value that launch does not read as YAML."""

    value: str
    value_type: type


class PackageNotFoundError(Exception):
    pass


PREFIXES: dict[str, str] = {}  # of the ROS packages that are installed


def get_package_prefix(package_name: str) -> str:
    if package_name not in PREFIXES:
        raise PackageNotFoundError(package_name)
    return PREFIXES[package_name]


def install(monkeypatch: Any) -> None:
    """Make `import launch` and `import launch_ros` work, until the end of the test."""
    modules = {
        name: ModuleType(name) for name in ("launch", "launch.actions", "launch.substitutions", "launch_ros")
    }
    modules["launch_ros.actions"] = ModuleType("launch_ros.actions")
    modules["launch"].LaunchDescription = LaunchDescription
    modules["launch"].__path__ = modules["launch_ros"].__path__ = []
    for action in (DeclareLaunchArgument, OpaqueFunction, Shutdown):
        setattr(modules["launch.actions"], action.__name__, action)
    modules["launch.substitutions"].LaunchConfiguration = LaunchConfiguration
    modules["launch_ros.actions"].Node = Node
    descriptions = modules["launch_ros.parameter_descriptions"] = ModuleType("parameter_descriptions")
    descriptions.ParameterValue = ParameterValue
    index = modules["ament_index_python.packages"] = ModuleType("ament_index_python.packages")
    index.get_package_prefix, index.PackageNotFoundError = get_package_prefix, PackageNotFoundError
    modules["ament_index_python"] = ModuleType("ament_index_python")
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)


def launch(description: LaunchDescription, **values: str) -> list[Node]:
    """The nodes that `ros2 launch file.launch.py name:=value ...` would start."""
    context, nodes, entities = Context(dict(values)), [], list(description.entities)
    while entities:
        entity = entities.pop(0)
        if isinstance(entity, Node):
            nodes.append(entity)
        else:
            entities = entity.visit(context) + entities
    return nodes
