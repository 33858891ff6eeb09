"""`python -m robo_rl.apps.node <node> key=value ...`: run one node on any bus.

Launch files and `robo-rl up` start these. Arguments after "--ros-args" are left to rclpy, which reads the
command line itself.
"""

from __future__ import annotations

import gc
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from robo_rl.apps.nodes.log_stream import log_prints, name_launch_arguments
from robo_rl.apps.nodes.node_life import leave, listening, live
from robo_rl.apps.nodes.node_settings import parse_settings
from robo_rl.apps.nodes.node_table import NODES, load_attribute, node_settings
from robo_rl.apps.nodes.process import ignore_lost_readers
from robo_rl.apps.nodes.ros.launch_words import as_started
from robo_rl.apps.nodes.ros.parameters import (
    NO_PARAMETERS,
    parameters_of,
    refuse_parameters,
    with_parameters,
)
from robo_rl.conf.node import NodeConfig
from robo_rl.core.errors import MissingDependencyError, RoboRLError, UnknownNameError
from robo_rl.core.files.path_error import explained
from robo_rl.core.packages import install_command
from robo_rl.runs.signals import signal_source

if TYPE_CHECKING:  # see node_life
    from hardware.bus.protocol import Bus
    from hardware.nodes.shared.protocol import Node

USAGE = "Usage: python -m robo_rl.apps.node <node> key=value ...; <node> --help lists its settings"
OWN = ("robo_rl", "policies", "sim", "hardware")  # packages of this project
STARTING = "while it was starting: nothing was sent."


def main(argv: Sequence[str] | None = None) -> int:
    """Run one node until it is stopped; returns the exit code.

    A user's mistake is printed as one sentence without a traceback.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    ros_arguments: list[str] = []
    if "--ros-args" in arguments:
        at = arguments.index("--ros-args")
        arguments, ros_arguments = arguments[:at], arguments[at + 1 :]
    try:
        return _run(arguments, ros_arguments)
    except RoboRLError as error:
        print(f"{arguments[0] if arguments else 'node'}: {as_started(str(error))}", file=sys.stderr)
        return error.exit_code
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] in OWN:
            raise
        print(
            f"{arguments[0] if arguments else 'node'}: The package '{error.name}' is not installed for "
            f"{sys.executable}. Install robo-rl's packages for this Python, or activate the virtual "
            "environment that has them; see docs/ros2.md.",
            file=sys.stderr,
        )
        return MissingDependencyError.exit_code
    except KeyboardInterrupt:
        print(f"{arguments[0] if arguments else 'node'}: {signal_source(signal.SIGINT)} {STARTING}")
        return 0


def _run(arguments: list[str], ros_arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help"):
        print(f"{USAGE}\nNodes: {', '.join(NODES)}")
        return 0
    name, overrides = arguments[0], arguments[1:]
    if name not in NODES:
        raise UnknownNameError("node", name, NODES)
    schema = load_attribute(NODES[name][1])
    if {"-h", "--help"} & set(overrides):
        print(_help(name, schema))
        return 0
    made: list[tuple[Node, Bus]] = []
    with listening() as ending:
        try:
            made.append(_start_alone(name, overrides, ros_arguments))
        except OSError as error:
            if (known := explained(error)) is None:
                raise
            raise known from error
        gc.freeze()  # what the node consists of is never searched for garbage while it runs
        log_prints(made[0][1], made[0][1].name)
        live(made, ending)
    if not ending.started:
        leave(made)
        print(f"{name}: {ending.why} {STARTING}")
    return 0


def _start_alone(name: str, words: list[str], ros_words: list[str]) -> tuple[Node, Bus]:
    """Build a node that has this process for itself; on rclpy, ROS parameters are settings, too."""
    from hardware.bus.choose import choose, make_bus
    from hardware.bus.parameters import ParameterBus

    own = parse_settings(
        name, [word for word in words if word.partition("=")[0] in NO_PARAMETERS], NodeConfig
    )
    if choose(own.bus) != "rclpy":
        refuse_parameters(ros_words)
        return start(name, node_settings(name, words))
    bus = make_bus(own.name or name, own.namespace, own.bus)
    try:
        assert isinstance(bus, ParameterBus)
        schema, warn = load_attribute(NODES[name][1]), partial(print, file=sys.stderr)
        config = node_settings(name, with_parameters(schema, words, bus.given_parameters(), warn))
    except BaseException:
        bus.close()
        raise
    return start(name, config, bus)


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """While modules are imported: nearly all new objects stay, and searching them takes 5 % of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@_no_garbage_collection()
def start(name: str, config: NodeConfig, bus: Any = None) -> tuple[Node, Bus]:
    """Build the node and its bus. bus: given for nodes that share a process."""
    from hardware.bus.choose import make_bus
    from hardware.bus.parameters import ParameterBus

    builder, _, extra = NODES[name]
    if bus is None:
        bus = make_bus(config.name or name, config.namespace, config.bus)
    try:
        node: Node = load_attribute(builder)(config, bus)
    except ModuleNotFoundError as error:
        bus.close()
        if error.name is None or error.name.split(".")[0] in OWN:
            raise
        raise MissingDependencyError(
            f"The node {name} needs the package '{error.name}', which is not installed. Run: "
            f"{install_command(error.name, extra)}"
        ) from error
    except BaseException:
        bus.close()
        raise
    if isinstance(bus, ParameterBus):
        bus.show_parameters(parameters_of(config))
    return node, bus


def _help(name: str, schema: type) -> str:
    from robo_rl.conf.fields import settings

    rows = [
        f"  {s.key:<12} {s.type_words:<28} {s.default_words:<12} {s.meaning}"
        for s in settings(schema).values()
    ]
    return "\n".join([f"python -m robo_rl.apps.node {name} key=value ...", "", *rows])


if __name__ == "__main__":
    ignore_lost_readers()
    name_launch_arguments()
    sys.exit(main())
