"""robot_state_publisher in the launch files: /tf and robot_description from the robot's URDF."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from robo_rl.core.errors import ConfigError, MissingDependencyError

PACKAGE = "robot_state_publisher"


def urdf_text(path: str) -> str:
    """Content of a URDF file. Raises ConfigError for a file that cannot be read or holds no URDF."""
    if path.endswith(".xacro"):
        raise ConfigError(
            f"urdf={path} is a xacro file, expected a URDF. Run: xacro {path} > {path.removesuffix('.xacro')}"
        )
    try:
        text = Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"urdf={path} cannot be read: {error}. Give the path of a URDF file.") from error
    if "<robot" not in text:
        raise ConfigError(f"urdf={path} has no <robot> element, expected a URDF file.")
    return text


def robot_state_publisher(
    path: str, use_sim_time: bool, namespace: dict[str, str], environment: Mapping[str, str]
) -> Any:
    """Launch action that publishes tf, tf_static and robot_description from joint_states.

    By default it publishes on /tf in every namespace, so robots with the same frames would overwrite
    each other; here each namespace has its own topic. environment: variables to add to that of the launch.

    Raises MissingDependencyError where the ROS package is not installed.
    """
    from ament_index_python.packages import PackageNotFoundError, get_package_prefix
    from launch_ros.actions import Node
    from launch_ros.parameter_descriptions import ParameterValue

    text = urdf_text(path)
    try:
        get_package_prefix(PACKAGE)
    except PackageNotFoundError as error:
        distribution = os.environ.get("ROS_DISTRO", "jazzy")
        raise MissingDependencyError(
            f"urdf={path} needs the ROS package {PACKAGE}, which is not installed. Run: sudo apt install "
            f"ros-{distribution}-{PACKAGE.replace('_', '-')}"
        ) from error
    return Node(
        package=PACKAGE,
        executable=PACKAGE,
        name=PACKAGE,
        exec_name=PACKAGE,
        **namespace,
        remappings=[("/tf", "tf"), ("/tf_static", "tf_static")],
        parameters=[
            {"robot_description": ParameterValue(text, value_type=str), "use_sim_time": use_sim_time}
        ],
        output="screen",
        additional_env=dict(environment),
    )
