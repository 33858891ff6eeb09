"""Fake controller of ros2_control in a process with rclpy: a node with parameters, topic and action.

Arguments: its type, its parameters as JSON, and the action's error code (0: goals are followed). It publishes
joint_states of joints a and b, and says on `heard` how many trajectories and goals came.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import rclpy
from control_msgs.action import FollowJointTrajectory
from rclpy.action import ActionServer
from rclpy.callback_groups import ReentrantCallbackGroup
from rclpy.executors import MultiThreadedExecutor
from rclpy.node import Node
from sensor_msgs.msg import JointState
from std_msgs.msg import Float64MultiArray, String
from trajectory_msgs.msg import JointTrajectory


class Controller(Node):
    """Joints that are where the last waypoint led them."""

    def __init__(self, parameters: dict[str, Any], code: int) -> None:
        super().__init__("jtc")
        for name, value in parameters.items():
            self.declare_parameter(name, value)
        self.place, self.counts, self._code = [0.0, 0.0], {"topic": 0, "goals": 0, "forward": 0}, code
        self.newest: list[float] = []
        self._states = self.create_publisher(JointState, "joint_states", 1)
        self._heard = self.create_publisher(String, "heard", 1)
        self.create_subscription(JointTrajectory, "jtc/joint_trajectory", self._on_topic, 1)
        self.create_subscription(Float64MultiArray, "jtc/commands", self._on_forward, 1)
        at_once = ReentrantCallbackGroup()  # a goal is executed while the next one arrives
        self._action = ActionServer(
            self, FollowJointTrajectory, "jtc/follow_joint_trajectory", self._on_goal, callback_group=at_once
        )
        self.create_timer(0.01, self._tell)

    def _on_topic(self, message: JointTrajectory) -> None:
        self._follow("topic", message)

    def _on_forward(self, message: Float64MultiArray) -> None:
        self.counts["forward"] += 1
        self.place = list(message.data)

    def _on_goal(self, goal: Any) -> Any:
        if self._code != 0:
            goal.abort()
            return FollowJointTrajectory.Result(
                error_code=self._code, error_string="the joints are too far away"
            )
        self._follow("goals", goal.request.trajectory)
        mine, ends_s = self.counts["goals"], time.monotonic() + self.newest[-1]
        while time.monotonic() < ends_s:
            time.sleep(0.005)
            if (
                self.counts["goals"] != mine
            ):  # as joint_trajectory_controller says it of a goal that is replaced
                goal.abort()
                return FollowJointTrajectory.Result(error_code=-1, error_string="canceled by a new goal")
        goal.succeed()
        return FollowJointTrajectory.Result(error_code=0)

    def _follow(self, what: str, message: JointTrajectory) -> None:
        self.counts[what] += 1
        self.newest = [
            point.time_from_start.sec + point.time_from_start.nanosec / 1e9 for point in message.points
        ]
        self.place = [message.points[-1].positions[message.joint_names.index(name)] for name in ("a", "b")]

    def _tell(self) -> None:
        state = JointState(name=["a", "b"], position=self.place, velocity=[0.0, 0.0])
        state.header.stamp = self.get_clock().now().to_msg()
        self._states.publish(state)
        self._heard.publish(String(data=json.dumps({"times_s": self.newest, **self.counts})))


def main() -> None:
    kind, parameters, code = sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3])
    rclpy.init()
    manager = Node("controller_manager")
    manager.declare_parameter("jtc.type", kind)
    executor = MultiThreadedExecutor(6)
    executor.add_node(manager)
    executor.add_node(Controller(parameters, code))
    executor.spin()


if __name__ == "__main__":
    main()
