"""Conclusions from a controller's own parameters on how to command it: pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from robo_rl.core.errors import DriverError

Output = Literal["trajectory", "forward", "action"]
PARAMETERS = (
    "joints",
    "command_interfaces",
    "interface_name",
    "interpolation_method",
    "interpolate_from_desired_state",
    "open_loop_control",
    "allow_partial_joints_goal",
    "allow_nonzero_velocity_at_trajectory_end",
)


@dataclass(frozen=True, slots=True)
class ControllerFacts:
    """Output that a controller takes.

    joins: it continues a trajectory from its own desired state. advice: sentence for the terminal;
    empty: nothing to set.
    """

    output: Output
    joins: bool = False
    advice: str = ""


def controller_facts(
    name: str, kind: str, found: Mapping[str, Any], joints: Sequence[str], output: str
) -> ControllerFacts:
    """Facts from the parameters `found` of the controller `name`.

    kind: its type, such as joint_trajectory_controller/JointTrajectoryController; empty: not known. output:
    wanted by the user; "auto": whatever the controller takes. Raises DriverError for a controller that cannot
    be commanded that way, with what to set.
    """
    forward = "command_interfaces" not in found and ("interface_name" in found or "position" in kind.lower())
    if not forward and "command_interfaces" not in found:
        raise DriverError(
            f"The controller '{name}' is of type '{kind or 'unknown'}', which takes no joint positions. Use "
            "a joint_trajectory_controller or a forward_command_controller."
        )
    takes: Output = "forward" if forward else "action" if output == "action" else "trajectory"
    if output not in ("auto", takes):
        raise DriverError(
            f"The controller '{name}' ({kind or takes}) does not take output={output}. Set output={takes} or "
            "auto."
        )
    _check_interface(name, found)
    return _forward(name, found, joints) if forward else _trajectory(name, found, joints, takes)


def _check_interface(name: str, found: Mapping[str, Any]) -> None:
    commanded = list(found.get("command_interfaces") or [found.get("interface_name") or "position"])
    if commanded != ["position"]:
        key = "command_interfaces" if "command_interfaces" in found else "interface_name"
        raise DriverError(
            f"The controller '{name}' commands {', '.join(map(str, commanded))}; this driver sends "
            f"positions. Set {key}: {'[position]' if key == 'command_interfaces' else 'position'}."
        )


def _forward(name: str, found: Mapping[str, Any], joints: Sequence[str]) -> ControllerFacts:
    ordered = list(found.get("joints") or joints)
    if ordered != list(joints):
        raise DriverError(
            f"The controller '{name}' takes numbers for the joints {', '.join(ordered)}, in this order; the "
            f"robot's description has {', '.join(joints)}. Set its parameter joints to this order."
        )
    return ControllerFacts("forward")


def _trajectory(
    name: str, found: Mapping[str, Any], joints: Sequence[str], output: Output
) -> ControllerFacts:
    controlled = list(found.get("joints") or joints)
    if missing := [joint for joint in joints if joint not in controlled]:
        raise DriverError(
            f"The controller '{name}' has no joint {', '.join(missing)}; it has {', '.join(controlled)}. Use "
            "its joint names in the robot's description."
        )
    if len(controlled) > len(joints) and not found.get("allow_partial_joints_goal"):
        others = [joint for joint in controlled if joint not in joints]
        raise DriverError(
            f"The controller '{name}' also has the joints {', '.join(others)}, and refuses trajectories "
            "without them. Set its parameter allow_partial_joints_goal: true."
        )
    if found.get("interpolation_method", "splines") != "splines":
        raise DriverError(
            f"The controller '{name}' has interpolation_method: {found['interpolation_method']}, so it steps "
            "from waypoint to waypoint. Set interpolation_method: splines."
        )
    joins = bool(found.get("interpolate_from_desired_state") or found.get("open_loop_control"))
    advice = (
        f"The controller '{name}' starts a trajectory at the measured state. Set "
        "interpolate_from_desired_state: true, so that delays of messages do not show in its motion."
    )
    return ControllerFacts(output, joins, "" if joins else advice)
