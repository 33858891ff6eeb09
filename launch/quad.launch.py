"""A quadcopter behind the flight filter, flown by a bundle.

ros2 launch robo_rl quad.launch.py bundle:=/path/to/bundle
The nodes and arguments are those of robo_rl/conf/node_sets/quad.yaml; `--show-args` lists them.
"""

from robo_rl.apps.nodes.ros_launch import describe


def generate_launch_description():  # noqa: ANN201 - launch calls it by this name; its types are ROS'
    """Launch description, for `ros2 launch`."""
    return describe("quad")
