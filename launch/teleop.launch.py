"""An arm that a human drives, filtered and recorded.

ros2 launch robo_rl teleop.launch.py robot:=/path/to/robot.yaml camera:=0
The nodes and arguments are those of robo_rl/conf/node_sets/teleop.yaml; `--show-args` lists them.
"""

from robo_rl.apps.nodes.ros_launch import describe


def generate_launch_description():  # noqa: ANN201 - launch calls it by this name; its types are ROS'
    """Launch description, for `ros2 launch`."""
    return describe("teleop")
