"""Sets of nodes as ROS 2 launch descriptions. Launch files call this; ROS is imported only then."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from hardware.bus.names import domain_id
from robo_rl.apps.nodes.node_sets import MODULE, NodeSet, load_set
from robo_rl.apps.nodes.ros.interrupt import asked_by_launch, interrupt_no_task
from robo_rl.apps.nodes.ros.launch_words import as_launch_arguments, launch_variables
from robo_rl.apps.nodes.ros.network import NETWORKS, network_notice, network_variables
from robo_rl.apps.nodes.ros.robot_state import robot_state_publisher
from robo_rl.apps.nodes.supervise import ending, namespace_lock, rest_s
from robo_rl.core.errors import BusError, ConfigError, RoboRLError
from robo_rl.core.files.lock import FolderLock
from robo_rl.core.process_signals import ASK
from robo_rl.core.text.nearest import did_you_mean

PYTHON = "python3"  # of the nodes; `ros2` itself may run in another one, which lacks their packages
FILES = ("sim.launch.py", "arm.launch.py", "quad.launch.py", "teleop.launch.py")
PREFLIGHT = "robo_rl.apps.nodes.preflight"
AUTO_BUS = "robo_rl.apps.nodes.ros.bus"
PROCESS = "robo_rl.apps.nodes.process"  # runs a module that stops with its parent
_LOCKS: list[FolderLock] = []  # locks of namespaces, held until this process ends
COMMON = {
    "namespace": ("", "of the robot: several share a network that way"),
    "use_sim_time": ("false", "true: stamps come from /clock, of a simulator or a recording"),
    "params_file": (
        "",
        "YAML file of ROS parameters for the nodes' settings; arguments that are given win over it",
    ),
    "urdf": (
        "",
        "URDF file of the robot: robot_state_publisher publishes /tf and robot_description; empty: nobody "
        "does",
    ),
    "network": (
        "loopback",
        "bus:=rclpy: loopback discovers nodes of this machine alone, lan those of the network too; without "
        "effect where a variable of ROS or DDS chooses the network",
    ),
    "bus": (
        "rclpy",
        "rclpy, or dds: without rclpy, for a Python that ROS is not built for; auto: rclpy where the nodes' "
        "Python can import it, dds otherwise",
    ),
}
BUSES = ("rclpy", "dds", "auto")  # not in_process: each node is a process
EMPTY = ("''", '""')  # `ros2 launch` refuses `goal:=`, so an empty value is written `goal:="''"`
NEED_RCLPY = ("use_sim_time", "params_file")


def describe(*names: str) -> Any:
    """LaunchDescription of one set, or of several, of which the argument `set` chooses one (default: the
    first).
    """
    from launch.actions import DeclareLaunchArgument, OpaqueFunction

    from launch import LaunchDescription

    sets = {name: load_set(name) for name in names}
    declared: dict[str, Any] = {}
    if len(sets) > 1:
        about = "; ".join(f"{name}: {chosen.about.rstrip('.')}" for name, chosen in sets.items())
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
        allowed = {"use_sim_time": ["true", "false"], "network": list(NETWORKS), "bus": list(BUSES)}
        choices = {"choices": allowed[name]} if name in allowed else {}
        declared[name] = DeclareLaunchArgument(name, default_value=text, description=meaning, **choices)
    explicit: set[str] = set()  # arguments that the user gave, known only before they are declared
    note = OpaqueFunction(function=lambda context: explicit.update(context.launch_configurations))

    def start(context: Any) -> list[Any]:
        try:
            return _nodes(context, sets, explicit)
        except RoboRLError as error:
            error.args = (as_launch_arguments(str(error), declared),)
            raise

    return LaunchDescription([note, *declared.values(), OpaqueFunction(function=start)])


def _nodes(context: Any, sets: dict[str, NodeSet], explicit: set[str]) -> list[Any]:
    """One action per node, once the arguments have values. explicit: arguments that the user gave."""
    from launch.substitutions import LaunchConfiguration
    from launch_ros.actions import Node

    def value(name: str) -> str:
        return str(LaunchConfiguration(name).perform(context))

    def tell(sentence: str) -> None:
        print(f"launch: {as_launch_arguments(sentence, (*COMMON, *given))}", flush=True)

    for notice in _unknown(explicit, sets):
        print(f"launch: {notice}", flush=True)
    chosen = sets[value("set")] if len(sets) > 1 else next(iter(sets.values()))
    given = {argument.name: value(argument.name) for argument in chosen.arguments}
    if value("params_file") and not os.path.isfile(value("params_file")):  # launch only warns
        raise ConfigError(f"params_file={value('params_file')} is no file. Give the path of a YAML file.")
    space = {"namespace": value("namespace")} if value("namespace") else {}
    bus = _bus(value("bus"), context, tell)
    common = [f"bus={bus}"]
    if bus != "rclpy":  # ROS' own namespace works with rclpy alone
        _refuse_what_needs_rclpy({name: value(name) for name in NEED_RCLPY}, bus)
        common += [f"{key}={name}" for key, name in space.items()]
    emptied = {key: "" for key, text in given.items() if text in EMPTY}
    filled = {key: text for key, text in given.items() if text} | emptied
    commands = chosen.commands(filled, f"ros2 launch robo_rl sim.launch.py set:={chosen.name}")
    for remark in _check(
        _with_file(commands, chosen, explicit, value("params_file"), value("namespace")), context
    ):
        tell(remark)
    _LOCKS.append(namespace_lock(domain_id(None), value("namespace")))

    def parameters(words: list[str]) -> list[Any]:
        """Parameters of one node. Later ones win: the set's defaults are words, and lose."""
        if bus != "rclpy":
            return []
        files = [value("params_file")] if value("params_file") else []
        own = explicit_parameters(words, chosen.settings_from(words[0], explicit))
        return [*files, {"use_sim_time": value("use_sim_time") == "true", **own}]

    network = network_variables(value("network"), bus, os.environ)
    if notice := network_notice(network):
        tell(notice)
    models = (
        [robot_state_publisher(value("urdf"), value("use_sim_time") == "true", space, network)]
        if value("urdf")
        else []
    )
    nodes = [
        Node(
            # not package=: works for a colcon build and for pip in a virtual environment
            executable=PYTHON,
            # `ros2 launch` leaves its processes running when it is killed; these end with it
            arguments=["-m", PROCESS, str(os.getpid()), MODULE, *words, *common],
            name=name,
            exec_name=name,  # in front of each line in the terminal
            **space,
            parameters=parameters(words),
            output="screen",
            emulate_tty=True,
            additional_env={**network, **launch_variables((*COMMON, *given))},
            sigterm_timeout=f"{rest_s(name):g}",  # after SIGINT
            on_exit=_stop_all(name),
        )
        for name, words in commands.items()
    ]
    interrupt_no_task()  # from here on launch waits for the nodes
    signals = dict.fromkeys(models, signal.SIGINT) | dict.fromkeys(nodes, ASK)
    return [*asked_by_launch(signals), *models, *nodes]


def _unknown(explicit: Collection[str], sets: Mapping[str, NodeSet]) -> list[str]:
    """Sentences on unknown arguments of `ros2 launch`, which accepts any.

    Empty if another launch file includes this one: they may be arguments of that file.
    """
    if not any(Path(word).name in FILES for word in sys.argv):
        return []
    known = [*COMMON, "set", *(argument.name for chosen in sets.values() for argument in chosen.arguments)]
    return [
        f"the argument '{name}' is unknown and has no effect.{did_you_mean(name, known)}"
        for name in sorted(set(explicit) - set(known))
    ]


def _check(commands: Mapping[str, Sequence[str]], context: Any) -> list[str]:
    """Remarks on the nodes, checked as `robo-rl up` does, in their Python. Raises ConfigError with its
    sentence.
    """
    lines = _lines_of(context, PREFLIGHT, json.dumps(commands), "launch")
    return [line.removeprefix("launch: ") for line in lines]


def _bus(asked: str, context: Any, tell: Callable[[str], None]) -> str:
    """The bus of all nodes: for `auto` the one that it selects in their Python."""
    if asked != "auto":
        return asked
    found = _lines_of(context, AUTO_BUS)[-1]
    tell(f"bus=auto: the nodes run with bus={found}.")
    return found


def _lines_of(context: Any, module: str, *words: str) -> list[str]:
    """Output of a module in the Python of the nodes. Raises ConfigError with its last line if it fails."""
    done = subprocess.run(
        [PYTHON, "-m", module, *words],
        env=dict(getattr(context, "environment", os.environ)),
        capture_output=True,
        text=True,
        check=False,
    )
    if not done.returncode:
        return done.stdout.splitlines()
    last = (done.stderr.strip().splitlines() or [f"{module}: {ending(done.returncode)}"])[-1]
    if last.startswith("ModuleNotFoundError"):
        last = (
            f"{PYTHON} cannot check the nodes ({last}): install robo-rl's packages for this Python, or "
            "activate the virtual environment that has them; see docs/ros2.md."
        )
    raise ConfigError(last.removeprefix("robo-rl: "))


def _with_file(
    commands: Mapping[str, list[str]], chosen: NodeSet, explicit: set[str], file: str, namespace: str
) -> dict[str, list[str]]:
    """The commands with the values of the parameter file, which win over all but explicit arguments."""
    if not file:
        return dict(commands)
    from robo_rl.apps.nodes.node_table import NODES, load_attribute
    from robo_rl.apps.nodes.ros.parameters import parameters_in_file, with_parameters

    merged = {}
    for name, (node, *words) in commands.items():
        own = chosen.settings_from(node, explicit)
        found = parameters_in_file(Path(file), f"/{namespace.strip('/')}/{name}".replace("//", "/"))
        taken = {key: value for key, value in found.items() if key not in own}
        schema = load_attribute(NODES[node][1])
        merged[name] = [node, *with_parameters(schema, words, taken, warn=lambda sentence: None)]
    return merged


def explicit_parameters(words: Sequence[str], keys: Collection[str]) -> dict[str, Any]:
    """ROS parameters for the settings `keys` in the words of a node; as text, which the node converts."""
    from launch_ros.parameter_descriptions import ParameterValue

    pairs = (word.partition("=") for word in words[1:])
    return {key: ParameterValue(text, value_type=str) for key, _, text in pairs if key in keys}


def _refuse_what_needs_rclpy(values: Mapping[str, str], bus: str) -> None:
    """Raise ConfigError for arguments that nodes on another bus would ignore."""
    if found := [name for name in NEED_RCLPY if values[name] not in ("", "false")]:
        raise ConfigError(
            f"{found[0]}={values[found[0]]} needs bus=rclpy: nodes with bus={bus} read no parameters of ROS."
        )


def _stop_all(name: str) -> Callable[[Any, Any], None]:
    """Handler of a process' exit: an error, unless all nodes stop already.

    launch answers an error with an exit code of 1, after it has stopped all nodes. An action `Shutdown` would
    stop them as well, but `ros2 launch` would return 0.
    """

    def on_exit(event: Any, context: Any) -> None:
        if not context.is_shutdown:
            raise BusError(f"{name} has ended by itself ({ending(event.returncode)}): all nodes stop.")

    return on_exit
