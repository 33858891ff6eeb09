"""Mock hardware of ros2_control with the simulated arm's joints: manager, broadcaster and one controller.

ros2 launch examples/ros2_control/bringup.launch.py controller:=joint_trajectory_controller
"""

from pathlib import Path

from launch.actions import DeclareLaunchArgument
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import Node

from launch import LaunchDescription

HERE = Path(__file__).parent


def generate_launch_description():  # noqa: ANN201 - launch calls it by this name; its types are ROS'
    """Launch description, for `ros2 launch`."""
    description = {"robot_description": (HERE / "sim_arm.urdf").read_text()}
    manager = "/controller_manager"

    def spawner(name):  # noqa: ANN001, ANN202
        """Load, configure and activate a controller."""
        words = [name, "--controller-manager", manager]
        return Node(package="controller_manager", executable="spawner", arguments=words)

    return LaunchDescription(
        [
            DeclareLaunchArgument(
                "controller",
                default_value="joint_trajectory_controller",
                description="joint_trajectory_controller or forward_position_controller",
            ),
            Node(
                package="robot_state_publisher", executable="robot_state_publisher", parameters=[description]
            ),
            Node(
                package="controller_manager",
                executable="ros2_control_node",
                parameters=[str(HERE / "controllers.yaml")],
                remappings=[("~/robot_description", "/robot_description")],
                output="screen",
            ),
            spawner("joint_state_broadcaster"),
            spawner(LaunchConfiguration("controller")),
        ]
    )
