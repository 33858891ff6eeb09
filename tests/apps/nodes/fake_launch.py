"""Fake launch and launch_ros: the documented signatures (Jazzy), and the behaviour of `ros2 launch`.

Deferred actions run when `visit` is called, as the launch service does it.
"""

from __future__ import annotations

import runpy
import signal
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

LAUNCH = Path(__file__).resolve().parents[3] / "launch"
GIVEN = {"bundle": "/b", "robot": "ur5e"}  # arguments of arm.launch.py that have no default


@dataclass
class LaunchDescription:
    entities: Iterable[Any] = ()


@dataclass
class Context:
    """Values of arguments, and what is registered for events."""

    launch_configurations: dict[str, str] = field(default_factory=dict)
    noninteractive: bool = False
    handlers: list[Any] = field(default_factory=list)


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
        value = context.launch_configurations[self.name]
        if self.choices is not None and value not in self.choices:
            raise RuntimeError(f'Argument "{self.name}" provided value "{value}" is not valid.')
        return []


class OpaqueFunction:
    def __init__(self, *, function: Callable[..., Any], args: Any = None, kwargs: Any = None) -> None:
        self.function, self.args, self.kwargs = function, args or [], kwargs or {}

    def visit(self, context: Context) -> list[Any]:
        return list(self.function(context, *self.args, **self.kwargs) or [])


@dataclass
class OnShutdown:
    on_shutdown: Callable[[Any, Context], Any]


@dataclass
class OnProcessStart:
    target_action: Any
    on_start: Callable[[Any, Context], Any]


@dataclass
class RegisterEventHandler:
    event_handler: OnShutdown | OnProcessStart

    def visit(self, context: Context) -> list[Any]:
        context.handlers.append(self.event_handler)
        return []


@dataclass
class SignalProcess:
    signal_number: signal.Signals
    process_matcher: Callable[[Any], bool]


@dataclass
class EmitEvent:
    event: SignalProcess


def matches_action(target_action: Any) -> Callable[[Any], bool]:
    return lambda action: action is target_action


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
    for name in ("event_handlers", "events", "events.process"):
        modules[f"launch.{name}"] = ModuleType(f"launch.{name}")
    modules["launch.events"].matches_action = matches_action
    modules["launch.events.process"].SignalProcess = SignalProcess
    for handler in (OnShutdown, OnProcessStart):
        setattr(modules["launch.event_handlers"], handler.__name__, handler)
    modules["launch"].LaunchDescription = LaunchDescription
    modules["launch"].__path__ = modules["launch_ros"].__path__ = []
    for action in (DeclareLaunchArgument, OpaqueFunction, Shutdown, EmitEvent, RegisterEventHandler):
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
    return launch_in(Context(dict(values)), description)


def launch_in(context: Context, description: LaunchDescription) -> list[Node]:
    """The same with a context, which has the handlers of events afterwards."""
    nodes, entities = [], list(description.entities)
    while entities:
        entity = entities.pop(0)
        if isinstance(entity, Node):
            nodes.append(entity)
        else:
            entities = entity.visit(context) + entities
    return nodes


def start(context: Context, node: Node) -> list[tuple[Any, signal.Signals]]:
    """Start the process of a node. Returns the signals that the launch file sends then, with its node."""
    handlers = [h for h in context.handlers if isinstance(h, OnProcessStart) and h.target_action is node]
    return _signals([handler.on_start(SimpleNamespace(action=node), context) for handler in handlers], node)


def shut_down(context: Context, nodes: list[Node], due_to_sigint: bool) -> list[tuple[Any, signal.Signals]]:
    """Signals that the launch file sends when launch shuts down, with their nodes."""
    handlers = [handler for handler in context.handlers if isinstance(handler, OnShutdown)]
    event = SimpleNamespace(due_to_sigint=due_to_sigint)
    emitted = [each for handler in handlers for each in handler.on_shutdown(event, context) or []]
    return _signals(emitted, *nodes)


def _signals(emitted: list[EmitEvent | None], *nodes: Node) -> list[tuple[Any, signal.Signals]]:
    return [
        (node, each.event.signal_number)
        for each in emitted
        if each is not None
        for node in nodes
        if each.event.process_matcher(node)
    ]


def describe(file: str) -> Any:
    """As `ros2 launch` loads it: by path, not as a module of a package."""
    return runpy.run_path(str(LAUNCH / f"{file}.launch.py"))["generate_launch_description"]()
