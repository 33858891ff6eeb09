"""State of the safety filter, as other nodes know it."""

from __future__ import annotations

from hardware.bus.in_process import InProcessWorld
from hardware.nodes.shared.filter_watch import FilterWatch
from hardware.nodes.shared.own_status import OwnStatus
from hardware.topics import SAFETY_STATE


def test_a_filter_that_is_armed_and_follows_nothing_holds() -> None:
    """Then the arm has not followed the last command, and the next one begins at the arm."""
    world = InProcessWorld()
    node, filter_ = world.bus("action_head"), world.bus("safety_filter")
    watch, own = FilterWatch(node), OwnStatus(filter_, SAFETY_STATE)
    node.timer(0.01, lambda: None)

    def told(level: int, phase: str) -> tuple[bool, bool]:
        own.tell(level, "as the test says", {"phase": phase})
        until_s = world.now() + 0.05
        node.spin(lambda: world.now() >= until_s)
        return watch.holds, bool(watch.reason)

    assert not watch.holds
    assert told(0, "armed") == (False, False)
    assert told(1, "armed") == (True, False)
    assert told(2, "disarmed") == (False, True)
