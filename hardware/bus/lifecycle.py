"""Nodes that are activated and deactivated, such as safety filters and drivers, as ROS 2 lifecycle nodes.

On every bus, Trigger services such as ~/arm and ~/stop do the same as the transitions `activate` and
`deactivate`; the state of the lifecycle follows the node, whatever has changed it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

from hardware.bus.protocol import Answer, Bus

FINALIZED = "this node was shut down by its lifecycle: start it again"


@runtime_checkable
class Lifecycle(Protocol):
    """Lifecycle of one node."""

    def report(self, active: bool) -> None:
        """Follow the node. Call it whenever the node has become active or inactive, and as often as liked."""
        ...

    @property
    def finalized(self) -> bool:
        """True after the transition `shutdown`: the node must not become active again."""
        ...


@runtime_checkable
class LifecycleBus(Protocol):
    """Bus that offers the services of ROS 2 lifecycle nodes."""

    def manage(self, activate: Callable[[], Answer], deactivate: Callable[[], Answer]) -> Lifecycle:
        """Offer the lifecycle's services. Call it once."""
        ...


class NoLifecycle:
    """Lifecycle on a bus without lifecycle nodes; the node's Trigger services do the same there."""

    finalized = False

    def report(self, active: bool) -> None:
        """Do nothing."""


def manage(bus: Bus, activate: Callable[[], Answer], deactivate: Callable[[], Answer]) -> Lifecycle:
    """The lifecycle of the node of `bus`.

    activate: returns (False, reason) where the node stays inactive. deactivate: begins to stop.
    """
    return bus.manage(activate, deactivate) if isinstance(bus, LifecycleBus) else NoLifecycle()
