"""Table of nodes: builder and settings of each. Modules are imported when a node is chosen."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

# name -> (builder called as build(config, bus); its settings; extra that installs what it imports)
NODES: dict[str, tuple[str, str, str | None]] = {
    "sim_robot": ("robo_rl.apps.nodes.builders:sim_robot", "robo_rl.conf.node:SimRobotNodeConfig", "sim"),
    "safety_filter": (
        "robo_rl.apps.nodes.builders:safety_filter",
        "robo_rl.conf.node:SafetyFilterNodeConfig",
        None,
    ),
    "robot_driver": (
        "robo_rl.apps.nodes.robot_builders:robot_driver",
        "robo_rl.conf.node:RobotDriverNodeConfig",
        None,
    ),
    "controller_driver": (
        "robo_rl.apps.nodes.robot_builders:controller_driver",
        "robo_rl.conf.node:ControllerDriverNodeConfig",
        None,
    ),
    "teleop": ("robo_rl.apps.nodes.robot_builders:teleop", "robo_rl.conf.node:TeleopNodeConfig", None),
    "camera": ("robo_rl.apps.nodes.builders:camera", "robo_rl.conf.node:CameraNodeConfig", "robot"),
    "recorder": ("robo_rl.apps.nodes.builders:recorder", "robo_rl.conf.node:RecorderNodeConfig", "dds"),
    "arm_policy": (
        "robo_rl.apps.nodes.builders:arm_policy",
        "robo_rl.conf.node:ArmPolicyNodeConfig",
        "robot",
    ),
    "action_head": (
        "robo_rl.apps.nodes.builders:action_head",
        "robo_rl.conf.node:ActionHeadNodeConfig",
        "robot",
    ),
    "flight_filter": (
        "robo_rl.apps.nodes.builders:flight_filter",
        "robo_rl.conf.node:FlightFilterNodeConfig",
        None,
    ),
    "quad_policy": (
        "robo_rl.apps.nodes.builders:quad_policy",
        "robo_rl.conf.node:QuadPolicyNodeConfig",
        "robot",
    ),
    "task": ("robo_rl.apps.nodes.builders:task", "robo_rl.conf.node:TaskNodeConfig", None),
    "record_app": (
        "robo_rl.apps.recording.build:record_app",
        "robo_rl.conf.record:RecordAppNodeConfig",
        "app",
    ),
    "diagnostics": (
        "robo_rl.apps.nodes.builders:diagnostics",
        "robo_rl.conf.node:DiagnosticsNodeConfig",
        None,
    ),
}


def node_settings(name: str, overrides: Sequence[str]) -> Any:
    """Settings of the node from `key=value` words. Raises ConfigError."""
    from robo_rl.apps.nodes.node_settings import parse_settings

    return parse_settings(name, overrides, load_attribute(NODES[name][1]))


def load_attribute(path: str) -> Any:
    """Object at `module:attribute`."""
    module, attribute = path.split(":")
    return getattr(import_module(module), attribute)
