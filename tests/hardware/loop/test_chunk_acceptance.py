"""Acceptance of chunks: one message on `policy/chunk` neither fills the memory nor blocks the policy."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hardware.loop.chunk_acceptance import HORIZON_S, MOST_WAYPOINTS
from hardware.loop.head import ActionHead
from hardware.messages import JointState, JointTrajectory
from hardware.nodes.action_head import ActionHeadNode
from hardware.topics import CHUNK, JOINT_STATES
from tests.hardware.arm_descriptions import NAMES, arm, state
from tests.hardware.scripted_bus import ScriptedBus


def chunk(times_s: Any, position: Any = None, names: Any = NAMES, stamp_s: float = 1.0) -> JointTrajectory:
    times = np.asarray(times_s, dtype=float)
    rows = np.zeros((len(times), len(names))) if position is None else np.asarray(position, dtype=float)
    return JointTrajectory(stamp_s, tuple(names), rows, times)


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
def test_hostile_chunks_are_refused_with_a_reason(why: str) -> None:
    """Within 0.1 s, and their stamp is not kept as the newest."""
    head = ActionHead(0.02, 0.02, names=NAMES)
    head.on_state(0.5, None, 0.0)
    begin_s = time.process_time()
    assert not head.on_chunk(HOSTILE[why], 0.0)
    assert time.process_time() - begin_s < 0.1
    assert why in head.refused
    assert head.on_chunk(chunk([0.02, 0.04], stamp_s=0.5), 0.0)
    assert not head.refused


def test_chunk_of_the_largest_length_is_accepted() -> None:
    head = ActionHead(0.02, 0.02, names=NAMES)
    head.on_state(1.0, None, 0.0)
    assert head.on_chunk(chunk(np.linspace(0.06, HORIZON_S, MOST_WAYPOINTS)), 0.0)


def test_joints_of_a_chunk_are_reordered() -> None:
    """Waypoints are sorted into the order of the robot's description."""
    head = ActionHead(0.02, 0.02, names=NAMES)
    head.on_state(1.0, None, 0.0)
    assert head.on_chunk(chunk([0.02], [[3.0, 1.0, 2.0]], names=("c", "a", "b")), 0.0)
    command = head.tick(0.0)
    assert command is not None
    assert command.tolist() == [1.0, 2.0, 3.0]


def at(stamp_s: float) -> JointState:
    return replace(state([0.0] * 3), stamp_s=stamp_s)


def test_future_stamp_does_not_block_the_policy() -> None:
    """Chunks with stamps in the future are refused; after a reset, so are those of older states."""
    bus, said = ScriptedBus(), list[str]()
    node = ActionHeadNode(bus, arm(), say=said.append)
    hear = bus.heard[JOINT_STATES.name], bus.heard[CHUNK.name]
    hear[0](at(5.0), 0.0)
    for stamp_s in (1e6, math.inf, math.nan):
        hear[1](chunk([0.02], stamp_s=stamp_s), 0.0)
    hear[1](chunk([0.02, 0.04], stamp_s=5.0), 0.0)
    hear[1](chunk([0.02], stamp_s=5.0), 0.0)
    assert node.head.player.left == 2, "played once"
    bus.services["~/reset"]()
    hear[0](at(6.0), 0.0)
    hear[1](chunk([0.02], stamp_s=5.5), 0.0)
    assert node.head.player.left == 0, "of a state before the reset"
    hear[1](chunk([0.02, 0.04, 0.06], stamp_s=6.0), 0.0)
    assert node.head.player.left == 3
    hear[1](chunk([2e9], stamp_s=7.0), 10.0)
    assert said[-1] == (
        "test: policy/chunk is dropped: its last waypoint is at 2e+09 s, expected a time above 0 s, at most "
        "60 s."
    )


@pytest.mark.parametrize(
    ("stamps_s", "cure"),
    [
        ([0.0] * 3, "give it the stamp of the joint_states that the policy observed"),
        ([99.0] * 3, "94 s later than that of the newest state: give it the stamp of the joint_states"),
        ([5.0] * 4, "infer from a newer state"),
    ],
    ids=["none", "ahead", "repeated"],
)
def test_repeatedly_refused_chunks_are_reported(stamps_s: list[float], cure: str) -> None:
    """Not after one or two of them, which may have been under way during a reset."""
    head = ActionHead(0.02, 0.02, names=NAMES)
    head.on_state(5.0, None, 0.0)
    told = [head.on_chunk(chunk([0.02], stamp_s=stamp_s), 0.0) or head.refused for stamp_s in stamps_s]
    assert "" in told
    assert cure in str(told[-1])


def test_simulated_clock_may_restart() -> None:
    """Chunks of the new time are played, one of the old time is not."""
    head = ActionHead(0.02, 0.02, names=NAMES)
    head.on_state(100.0, None, 0.0)
    assert head.on_chunk(chunk([0.02], stamp_s=100.0), 0.0)
    head.on_state(0.02, None, 0.1)
    assert not head.on_chunk(chunk([0.02], stamp_s=100.02), 0.0)
    assert head.on_chunk(chunk([0.02, 0.04], stamp_s=0.02), 0.0)


def test_states_without_stamps_are_ordered_by_receipt() -> None:
    """States without a stamp are stamped at receipt; a chunk from before a reset is still refused."""
    bus = ScriptedBus()
    node = ActionHeadNode(bus, arm(), say=lambda sentence: None)
    hear = bus.heard[JOINT_STATES.name], bus.heard[CHUNK.name]
    bus.now_s = 3.0
    hear[0](state([0.0] * 3), 3.0)
    hear[1](chunk([0.02], stamp_s=1e9 + 3.001), 3.0)
    assert node.head.player.left == 1
    bus.services["~/reset"]()
    bus.now_s = 4.0
    hear[0](state([0.0] * 3), 4.0)
    hear[1](chunk([0.02], stamp_s=1e9 + 3.9), 4.0)
    assert node.head.player.left == 0


def test_reset_head_pauses_for_six_ticks() -> None:
    """More than the 5 periods after which the filter treats a command as the first one."""
    head = ActionHead(0.02, 0.02, names=NAMES)
    head.on_state(1.0, None, 0.0)
    head.reset()
    head.on_state(2.0, None, 0.0)
    assert head.on_chunk(chunk([0.02, 0.04], stamp_s=2.0), 0.0)
    assert [head.tick(0.0) is None for _ in range(8)] == [True] * 6 + [False] * 2
