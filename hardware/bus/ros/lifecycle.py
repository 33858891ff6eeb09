"""Lifecycle of a node on rclpy: `ros2 lifecycle set /safety_filter configure`, `activate`, `deactivate`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hardware.bus.protocol import Answer


class RosLifecycle:
    """State machine and services of rclpy's lifecycle nodes, beside an ordinary node.

    `activate` and `deactivate` of the node are called for the transitions; `configure` and `cleanup` do
    nothing, because a node reads its settings when it starts. `shutdown` deactivates. log: called with the
    answers.
    """

    def __init__(
        self,
        node: Any,
        activate: Callable[[], Answer],
        deactivate: Callable[[], Answer],
        log: Callable[[str], object],
    ) -> None:
        self._activate, self._deactivate, self._log = activate, deactivate, log
        self._following = False  # the transition follows the node, which has changed by itself
        self._machine = _machine(node, self._on_activate, self._on_deactivate)

    @property
    def finalized(self) -> bool:
        """See `Lifecycle.finalized`."""
        return self._state == "finalized"

    def report(self, active: bool) -> None:
        """See `Lifecycle.report`."""
        if self._following or (self._state == "active") == active:
            return
        if self._state not in ("unconfigured", "inactive", "active"):
            return  # within a transition, or finalized
        self._following = True
        try:  # publishing the state must not prevent a stop
            if self._state == "unconfigured":
                self._machine.trigger_configure()
            self._machine.trigger_activate() if active else self._machine.trigger_deactivate()
        except RuntimeError as error:  # RCLError, when the context is gone
            self._log(f"The lifecycle cannot follow the node: {error}")
        finally:
            self._following = False

    @property
    def _state(self) -> str:
        return str(self._machine._state_machine.current_state[1])

    def _on_activate(self) -> bool:
        if self._following:
            return True
        done, sentence = self._activate()
        self._log(sentence)
        return done

    def _on_deactivate(self) -> bool:
        if not self._following:
            self._log(self._deactivate()[1])
        return True


def _machine(node: Any, on_activate: Callable[[], bool], on_deactivate: Callable[[], bool]) -> Any:
    """rclpy's LifecycleNodeMixin, which is made for a class of nodes, around a node that exists."""
    from rclpy.lifecycle import LifecycleNodeMixin, TransitionCallbackReturn

    def result(done: bool) -> Any:
        return TransitionCallbackReturn.SUCCESS if done else TransitionCallbackReturn.FAILURE

    class Machine(LifecycleNodeMixin):  # type: ignore[misc] # rclpy has no types for mypy
        def __init__(self) -> None:
            self.handle, self.default_callback_group = node.handle, node.default_callback_group
            self._services = node._services  # the list itself: the services of the lifecycle join it
            super().__init__()

        def on_activate(self, state: Any) -> Any:
            return result(on_activate())

        def on_deactivate(self, state: Any) -> Any:
            return result(on_deactivate())

        def on_shutdown(self, state: Any) -> Any:
            return result(on_deactivate())

    return Machine()
