"""An arm of ros2_control behind the safety filter, driven by a bundle.

ros2 launch robo_rl arm.launch.py bundle:=/path/to/bundle robot:=/path/to/robot.yaml
The nodes and arguments are those of robo_rl/conf/node_sets/arm.yaml; `--show-args` lists them.
"""

from robo_rl.apps.nodes.ros_launch import describe


def generate_launch_description():  # noqa: ANN201 - launch calls it by this name; its types are ROS'
    """Launch description, for `ros2 launch`."""
    return describe("arm")
