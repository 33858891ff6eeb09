"""A simulated arm or quadcopter behind its filter, driven by a bundle.

    ros2 launch robo_rl sim.launch.py bundle:=/path/to/bundle
    ros2 launch robo_rl sim.launch.py set:=quad_sim bundle:=/path/to/flight/bundle

The nodes and arguments are those of robo_rl/conf/node_sets/arm_sim.yaml and quad_sim.yaml; `--show-args`
lists them.
"""

from robo_rl.apps.nodes.ros_launch import describe


def generate_launch_description():  # noqa: ANN201 - launch calls it by this name; its types are ROS'
    """Launch description, for `ros2 launch`."""
    return describe("arm_sim", "quad_sim")
