"""Faults that are injected into a publisher's messages."""

from __future__ import annotations

import numpy as np

from hardware.bus.in_process import InProcessWorld
from hardware.bus.protocol import Bus
from hardware.checks.faulty_bus import Delay, FaultyBus, Freeze, Lose, NotFinite
from hardware.messages import JointState
from hardware.topics import JOINT_STATES


def state(stamp_s: float) -> JointState:
    return JointState(stamp_s, ("a",), np.array([stamp_s]), np.array([0.0]))


def test_each_fault_changes_what_is_published() -> None:
    """Freeze repeats the values and not the stamps; NotFinite spoils numbers; Lose loses; Delay waits."""
    world = InProcessWorld()
    bus = FaultyBus(world.bus("arm"))
    assert isinstance(bus, Bus)
    seen: list[JointState] = []
    JOINT_STATES.subscribe(world.bus("reader"), lambda message, _: seen.append(message))
    send = JOINT_STATES.publisher(bus)
    world.bus("clock").timer(0.01, lambda: None)

    def wait(until_s: float) -> None:
        world.run(lambda: world.now() >= until_s)

    def sent(*stamps_s: float) -> list[tuple[float, float]]:
        seen.clear()
        for stamp_s in stamps_s:
            send(state(stamp_s))
            wait(world.now() + 0.1)
        return [(message.stamp_s, float(message.position_rad[0])) for message in seen]

    bus.inject("joint_states", Freeze())
    assert sent(1.0, 2.0) == [(1.0, 1.0), (2.0, 1.0)]
    bus.inject("joint_states", NotFinite())
    ((stamp_s, value),) = sent(3.0)
    assert stamp_s == 3.0
    assert np.isnan(value)
    bus.inject("joint_states", Lose())
    assert sent(4.0) == []
    bus.cure("joint_states")
    assert sent(5.0) == [(5.0, 5.0)]
    bus.inject("joint_states", Delay(0.15))
    assert sent(6.0, 7.0, 8.0, 9.0) == [(6.0, 6.0), (7.0, 7.0)]
    bus.inject("joint_states", Lose(share=0.5, seed=1))
    assert 4 < len(sent(*range(20))) < 16
