"""Choice of the bus of a node, by the setting `bus=auto|rclpy|dds|in_process`."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib.util import find_spec

from hardware.bus.protocol import Bus
from robo_rl.core.errors import BusError, MissingDependencyError, UnknownNameError
from robo_rl.core.packages import pip_install

KINDS = ("auto", "rclpy", "dds", "in_process")


def make_bus(
    name: str, namespace: str = "", bus: str = "auto", warn: Callable[[str], None] | None = None
) -> Bus:
    """The bus of a new node. `auto` is rclpy where it can be imported, otherwise DDS.

    warn: called with warnings about the bus; without it they are logged. Raises UnknownNameError for an
    unknown bus, MissingDependencyError with the command that installs what is missing, and BusError for
    `in_process`, which cannot join separate processes.
    """
    kind = choose(bus)
    if kind == "rclpy":
        from hardware.bus.ros.bus import RosBus

        return RosBus(name, namespace, warn=warn)
    if kind == "dds":
        from hardware.bus.dds.bus import DdsBus

        return DdsBus(name, namespace, warn=warn)
    raise BusError(
        f"bus=in_process connects nodes of one process, but '{name}' has a process of its own. Use `robo-rl "
        "run`, which starts all nodes in one process, or bus=dds."
    )


def check_installed(kind: str) -> None:
    """Raise MissingDependencyError if the packages of the bus `kind` are not installed."""
    if kind == "rclpy" and find_spec("rclpy") is None:
        from hardware.bus.ros.bus import why_no_rclpy

        raise MissingDependencyError(why_no_rclpy(ModuleNotFoundError("No module named 'rclpy'")))
    for package in ("cyclonedds", "rosbags") if kind == "dds" else ():
        if find_spec(package) is None:
            raise MissingDependencyError(
                f"The DDS bus needs the package '{package}', which is not installed. Run: "
                f"{pip_install('dds')}"
            )


def imports_rclpy() -> bool:
    """True if this Python can import rclpy. A sourced ROS is found by every Python, and built for one."""
    try:
        import rclpy  # noqa: F401
    except ImportError:
        return False
    return True


def choose(bus: str) -> str:
    """The bus that `auto` selects on this machine; other names are returned unchanged.

    Raises UnknownNameError for an unknown bus, MissingDependencyError if `auto` finds no bus.
    """
    if bus not in KINDS:
        raise UnknownNameError("bus", bus, KINDS)
    if bus != "auto":
        return bus
    if imports_rclpy():
        return "rclpy"
    if find_spec("cyclonedds") is not None and find_spec("rosbags") is not None:
        return "dds"
    sourced = os.environ.get("ROS_DISTRO")
    ros = (
        f"ROS 2 {sourced} is sourced, but its rclpy is for another Python"
        if sourced
        else "no ROS 2 is sourced (source /opt/ros/<distribution>/setup.bash)"
    )
    raise MissingDependencyError(
        f"Nodes need a bus: {ros}, and the packages for DDS without ROS are not installed. Run: "
        f"{pip_install('dds')}"
    )
