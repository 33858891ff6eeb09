"""Calls of services by a hidden node, because an executor cannot be spun from its own callback."""

from __future__ import annotations

import time
from typing import Any

from hardware.bus.names import unknown_service
from hardware.bus.protocol import Answer
from hardware.bus.ros.messages import message_class
from robo_rl.core.errors import BusError

TRIGGER = "std_srvs/srv/Trigger"


class ServiceCaller:
    """Node and executor of their own, for the calls of the node `name`."""

    def __init__(self, name: str, context: Any) -> None:
        from rclpy.executors import SingleThreadedExecutor
        from rclpy.node import Node

        self.node = Node(
            f"_{name}_caller",
            context=context,
            use_global_arguments=False,  # otherwise `-r __node:=name` would rename this node, too
            enable_rosout=False,
            start_parameter_services=False,
        )
        self.executor = SingleThreadedExecutor(context=context)
        self.executor.add_node(self.node)
        self._clients: dict[str, Any] = {}

    def trigger(self, full: str, timeout_s: float) -> Answer:
        """Response of the Trigger service `full`. Raises BusError when none comes in time."""
        kind = message_class(TRIGGER)
        response = self.call(full, kind, kind.Request(), timeout_s)
        return bool(response.success), str(response.message)

    def call(
        self, full: str, kind: Any, request: Any, timeout_s: float, absent: BusError | None = None
    ) -> Any:
        """Response of the service `full` of this type.

        Raises BusError when none comes in time. absent: the error where the service is not found.
        """
        deadline_s = time.monotonic() + timeout_s
        if full not in self._clients:
            self._clients[full] = self.node.create_client(kind, full)
        client = self._clients[full]
        if not client.wait_for_service(timeout_sec=timeout_s):
            if absent is not None:
                raise absent
            seen = self.node.get_service_names_and_types()
            raise unknown_service(full, (name for name, types in seen if TRIGGER in types), timeout_s)
        future = client.call_async(request)
        left_s = max(0.0, deadline_s - time.monotonic())
        self.executor.spin_until_future_complete(future, timeout_sec=left_s)
        if not future.done():
            client.remove_pending_request(future)
            raise BusError(
                f"The service '{full}' did not respond within {timeout_s:g} s; see the output of its node."
                f"{_other_rmw()}"
            )
        return future.result()


def _other_rmw() -> str:
    """A hint where the RMW is not the one whose services nodes without ROS understand; otherwise empty."""
    from rclpy import get_rmw_implementation_identifier

    rmw = get_rmw_implementation_identifier()
    if rmw == "rmw_cyclonedds_cpp":
        return ""
    return (
        f" A node without ROS does not understand requests of {rmw}: call it with bus=dds, or set "
        "RMW_IMPLEMENTATION=rmw_cyclonedds_cpp."
    )
