"""Other ROS nodes: their parameters, and their FollowJointTrajectory actions. For `hardware.bus.ros`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hardware.bus.ros.messages import message_class, new
from hardware.bus.wire import pack
from hardware.messages import JointTrajectory
from robo_rl.core.errors import BusError, MissingDependencyError

NAMED = ("bool", "integer", "double", "string")  # rcl_interfaces/ParameterType 1 to 4; then arrays
ARRAYS = ("byte", "bool", "integer", "double", "string")  # 5 to 9
ACTIVITY = "controller_manager_msgs/msg/ControllerManagerActivity"
FOLLOW = "control_msgs/action/FollowJointTrajectory"
CANCELED = 5  # action_msgs/GoalStatus
SUCCESSFUL = 0  # FollowJointTrajectory_Result


def read_parameters(call: Callable[[str, Any, Any], Any], node: str, names: Sequence[str]) -> dict[str, Any]:
    """Values of those of these parameters that the node has. call(service, type, request) calls a service."""
    listing = message_class("rcl_interfaces/srv/ListParameters")
    known = set(call(f"{node}/list_parameters", listing, listing.Request()).result.names)
    wanted = [name for name in names if name in known]
    getting = message_class("rcl_interfaces/srv/GetParameters")
    values = call(f"{node}/get_parameters", getting, getting.Request(names=wanted)).values if wanted else []
    return {
        name: value for name, each in zip(wanted, values, strict=True) if (value := _value(each)) is not None
    }


def controller_states(activity: Any) -> dict[str, str]:
    """Lifecycle state of each controller in a message of the type `ACTIVITY`."""
    return {each.name: each.state.label for each in activity.controllers}


def _value(parameter: Any) -> Any:
    kind = parameter.type
    if 1 <= kind <= len(NAMED):
        return getattr(parameter, f"{NAMED[kind - 1]}_value")
    index = kind - len(NAMED) - 1
    return list(getattr(parameter, f"{ARRAYS[index]}_array_value")) if 0 <= index < len(ARRAYS) else None


class RosTrajectoryAction:
    """Client of one action, on a node whose executor runs; see `TrajectoryAction`."""

    def __init__(self, node: Any, name: str) -> None:
        from rclpy.action import ActionClient

        try:
            self._type = message_class(FOLLOW)
        except MissingDependencyError as error:
            raise BusError(f"output=action: {error}") from error
        self._client: Any = ActionClient(node, self._type, name)
        self._name, self._fault, self._sent, self._first = name, "", 0, 1

    @property
    def fault(self) -> str:
        if not self._client.server_is_ready():
            return f"no server of the action '{self._name}' is there: activate its controller"
        return self._fault

    def reset(self) -> None:
        """See `TrajectoryAction.reset`. Answers to earlier goals no longer count."""
        self._fault, self._first = "", self._sent + 1

    def send(self, trajectory: JointTrajectory) -> None:
        """See `TrajectoryAction.send`. Answers come to callbacks of the node's executor."""
        goal = self._type.Goal(trajectory=pack(trajectory, new))
        self._sent += 1
        number = self._sent
        self._client.send_goal_async(goal).add_done_callback(lambda future: self._on_answer(number, future))

    def _on_answer(self, number: int, future: Any) -> None:
        handle = future.result()
        if handle is None or not handle.accepted:
            if number >= self._first:
                self._fault = f"the action '{self._name}' refuses goals: see the output of its controller"
            return
        handle.get_result_async().add_done_callback(lambda done: self._on_result(number, done))

    def _on_result(self, number: int, future: Any) -> None:
        """Note the failure of the newest goal. An older one was replaced: servers cancel or abort it."""
        answer = future.result()
        replaced = number != self._sent or number < self._first
        if replaced or answer is None or answer.status == CANCELED or answer.result.error_code == SUCCESSFUL:
            return
        reason = answer.result.error_string.rstrip(". ") or f"error code {answer.result.error_code}"
        self._fault = f"the action '{self._name}' failed: {reason}"

    def close(self) -> None:
        """Release the client."""
        self._client.destroy()
