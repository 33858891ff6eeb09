"""Sets of nodes as ROS 2 launch descriptions. Launch files call this; ROS is imported only then."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from hardware.bus.names import domain_id
from robo_rl.apps.nodes.node_sets import MODULE, NodeSet, load_set
from robo_rl.apps.nodes.supervise import ending, namespace_lock, rest_s
from robo_rl.core.errors import BusError
from robo_rl.core.files.lock import FolderLock

PROCESS = "robo_rl.apps.nodes.process"  # runs a module that stops with its parent
_LOCKS: list[FolderLock] = []  # of namespaces, held until this process ends
COMMON = {
    "namespace": ("", "of the robot: several share a network that way"),
    "bus": ("rclpy", "rclpy, or dds: without rclpy, for a Python that ROS is not built for"),
}


def describe(*names: str) -> Any:
    """LaunchDescription of one set, or of several, of which the argument `set` chooses one (default: the
    first).
    """
    from launch.actions import DeclareLaunchArgument, OpaqueFunction

    from launch import LaunchDescription

    sets = {name: load_set(name) for name in names}
    declared: dict[str, Any] = {}
    if len(sets) > 1:
        about = "; ".join(f"{name}: {chosen.about}" for name, chosen in sets.items())
        declared["set"] = DeclareLaunchArgument(
            "set", default_value=names[0], description=about, choices=list(names)
        )
    for argument in (argument for chosen in sets.values() for argument in chosen.arguments):
        # Without a default, launch requires it. With several sets, the chosen set checks what it needs.
        needed = argument.default is None and len(sets) == 1
        default = None if needed else argument.default or ""
        declared.setdefault(
            argument.name,
            DeclareLaunchArgument(argument.name, default_value=default, description=argument.meaning),
        )
    for name, (text, meaning) in COMMON.items():
        declared[name] = DeclareLaunchArgument(name, default_value=text, description=meaning)
    start = OpaqueFunction(function=lambda context: _nodes(context, sets))
    return LaunchDescription([*declared.values(), start])


def _nodes(context: Any, sets: dict[str, NodeSet]) -> list[Any]:
    """One action per node, once the arguments have values."""
    from launch.substitutions import LaunchConfiguration
    from launch_ros.actions import Node

    def value(name: str) -> str:
        return str(LaunchConfiguration(name).perform(context))

    chosen = sets[value("set")] if len(sets) > 1 else next(iter(sets.values()))
    given = {argument.name: value(argument.name) for argument in chosen.arguments}
    space = {"namespace": value("namespace")} if value("namespace") else {}
    _LOCKS.append(namespace_lock(domain_id(None), value("namespace")))
    common = [f"bus={value('bus')}"]
    if value("bus") != "rclpy":  # ROS' own namespace works with rclpy alone
        common += [f"{key}={name}" for key, name in space.items()]
    return [
        Node(
            # not package=: works for a colcon build and for pip in a virtual environment
            executable="python3",
            # `ros2 launch` leaves its processes running when it is killed; these end with it
            arguments=["-m", PROCESS, str(os.getpid()), MODULE, *words, *common],
            name=name,
            exec_name=name,  # in front of each line in the terminal
            **space,
            output="screen",
            emulate_tty=True,
            sigterm_timeout=f"{rest_s(name):g}",  # after SIGINT
            on_exit=_stop_all(name),
        )
        for name, words in chosen.commands({key: text for key, text in given.items() if text}).items()
    ]


def _stop_all(name: str) -> Callable[[Any, Any], None]:
    """Handler of a process' exit: an error, unless all nodes stop already.

    launch answers an error with an exit code of 1, after it has stopped all nodes. An action `Shutdown` would
    stop them as well, but `ros2 launch` would return 0.
    """

    def on_exit(event: Any, context: Any) -> None:
        if not context.is_shutdown:
            raise BusError(f"{name} has ended by itself ({ending(event.returncode)}): all nodes stop.")

    return on_exit
