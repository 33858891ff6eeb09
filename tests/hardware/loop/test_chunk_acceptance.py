"""One message on `policy/chunk` neither fills the memory nor shuts out the policy."""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np
import pytest

from hardware.loop.chunk_acceptance import HORIZON_S, MOST_WAYPOINTS
from hardware.loop.head import ActionHead
from hardware.messages import JointTrajectory
from hardware.nodes.action_head import ActionHeadNode
from hardware.topics import CHUNK, JOINT_STATES
from tests.hardware.arm_descriptions import NAMES, arm, state
from tests.hardware.scripted_bus import ScriptedBus


def chunk(times_s: Any, position: Any = None, names: Any = NAMES, epoch: int = 1) -> JointTrajectory:
    times = np.asarray(times_s, dtype=float)
    rows = np.zeros((len(times), len(names))) if position is None else np.asarray(position, dtype=float)
    return JointTrajectory(0.0, tuple(names), rows, times, epoch, 0)


HOSTILE = {
    "it has no waypoint": chunk([]),
    "at 400000 s": chunk([400_000.0]),
    "at 2e+09 s": chunk([2e9]),
    "at inf s": chunk([math.inf]),
    "at nan s": chunk([math.nan]),
    "at -1 s": chunk([-1.0]),
    f"at most {MOST_WAYPOINTS}": chunk(np.linspace(0.001, 1.0, 100_000)),
    "not finite": chunk([0.02], [[0.0, math.nan, 0.0]]),
    "do not increase": chunk([0.04, 0.02]),
    "expected a, b, c": chunk([0.02], names=("x", "y", "z")),
    "shape (1, 2)": chunk([0.02], [[0.0, 0.0]]),
}


@pytest.mark.parametrize("why", HOSTILE)
def test_a_hostile_chunk_is_refused_with_its_reason(why: str) -> None:
    """Refused in less than 0.1 s, and its order is not remembered."""
    head = ActionHead(0.02, 0.02, names=NAMES)
    head.on_state(0.0, None, 0.0)
    begin_s = time.process_time()
    assert not head.on_chunk(HOSTILE[why])
    assert time.process_time() - begin_s < 0.1
    assert why in head.refused
    assert head.on_chunk(chunk([0.02, 0.04], epoch=0))
    assert not head.refused


def test_the_longest_chunk_is_played() -> None:
    head = ActionHead(0.02, 0.02, names=NAMES)
    head.on_state(0.0, None, 0.0)
    assert head.on_chunk(chunk(np.linspace(0.06, HORIZON_S, MOST_WAYPOINTS)))


def test_a_chunk_may_name_the_joints_in_another_order() -> None:
    """Waypoints are sorted into the order of the robot's description."""
    head = ActionHead(0.02, 0.02, names=NAMES)
    head.on_state(0.0, None, 0.0)
    assert head.on_chunk(chunk([0.02], [[3.0, 1.0, 2.0]], names=("c", "a", "b")))
    command = head.tick(0.0)
    assert command is not None
    assert command.tolist() == [1.0, 2.0, 3.0]


def test_a_reset_forgets_the_epoch_of_a_stranger() -> None:
    """A chunk of the largest epoch shuts out the policy until ~/reset, and not longer."""
    bus, said = ScriptedBus(), list[str]()
    node = ActionHeadNode(bus, arm(), say=said.append)
    hear = bus.heard[JOINT_STATES.name], bus.heard[CHUNK.name]
    hear[0](state([0.0] * 3), 0.0)
    hear[1](chunk([0.02], epoch=10**18), 0.0)
    hear[1](chunk([0.02], epoch=5), 0.0)
    assert node.head.player.left == 1
    bus.services["~/reset"]()
    hear[0](state([0.0] * 3), 0.0)
    hear[1](chunk([0.02, 0.04, 0.06], epoch=5), 0.0)
    assert node.head.player.left == 3
    hear[1](chunk([2e9], epoch=6), 0.0)
    assert said == ["test: policy/chunk is dropped: its last waypoint is at 2e+09 s, expected a time above 0 s, "
                    "at most 60 s."]  # fmt: skip
