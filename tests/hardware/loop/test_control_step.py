"""Decisions at a lower rate than commands."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from numpy import ndarray

from hardware.loop.control_step import ControlStep
from hardware.loop.head import ActionHead
from hardware.loop.observation import Seen
from hardware.loop.player import ChunkPlayer
from hardware.messages import JointTrajectory
from robo_rl.core.shapes import Float


class Decider:
    """Decides 1, 2, 3, ... for one joint, or adds 100 to the chunk's action; remembers what it saw."""

    def __init__(self, needs_chunks: bool = False) -> None:
        self.needs_chunks = needs_chunks
        self.saw: list[tuple[float, float | None]] = []

    def __call__(self, stacked: Seen, action: Float[ndarray, " a"] | None) -> Float[ndarray, " a"]:
        self.saw.append((float(stacked["state"].ravel()[-1]), None if action is None else float(action[0])))
        return np.array([len(self.saw)]) if action is None else action + 100.0


def played(head: ActionHead, ticks: int, first: int = 0) -> list[float | None]:
    """Commands of so many ticks of 20 ms, with a state in each."""
    sent = []
    for t in range(first, first + ticks):
        head.on_state(0.02 * t, {"state": np.array([float(t)], np.float32)}, 0.02 * t)
        command = head.tick(0.02 * t)
        sent.append(None if command is None else float(command[0]))
    return sent


def test_a_decision_is_reached_at_the_end_of_its_step() -> None:
    """20 Hz of 50 Hz: decisions at ticks 0, 3, 5, 8, of what was seen there; the first acts at once."""
    decide = Decider()
    head = ActionHead(0.02, 0.02, decide, control_s=0.05)
    assert played(head, 10) == pytest.approx([1, 1, 1, 1.5, 2, 2 + 0.4, 2.8, 3, 3.5, 4])
    assert [seen for seen, _ in decide.saw] == [0, 3, 5, 8]


def test_at_equal_rates_each_command_is_a_decision() -> None:
    """To the bit: nothing is interpolated."""
    for control_s in (None, 0.02, 0.01):
        decide = Decider()
        assert played(ActionHead(0.02, 0.02, decide, control_s=control_s), 4) == [1.0, 2.0, 3.0, 4.0]


def test_after_a_silence_a_decision_is_commanded_at_once() -> None:
    """A command from before it would be where the arm was then."""
    decide = Decider()
    head = ActionHead(0.02, 0.02, decide, control_s=0.1)
    assert played(head, 7)[-2:] == pytest.approx([1.2, 1.4])
    assert head.tick(10.0) is None  # the state is stale
    assert played(head, 2, first=600) == [3.0, 3.0]
    head.reset()
    assert next(command for command in played(head, 8, first=700) if command is not None) == 4.0


def test_a_first_decision_starts_from_the_arm() -> None:
    """A far one would be refused by the safety filter, which takes no first command far from the arm."""
    head, at = ActionHead(0.02, 0.02, Decider(), control_s=0.1), np.array([0.5])

    def command(t: int) -> float | None:
        head.on_state(0.02 * t, {"state": at}, 0.02 * t, at)
        sent = head.tick(0.02 * t)
        return None if sent is None else float(sent[0])

    assert [command(t) for t in range(7)] == pytest.approx([0.6, 0.7, 0.8, 0.9, 1.0, 1.2, 1.4])
    head.restart()  # a human drove the arm
    assert [command(t) for t in (7, 8)] == pytest.approx([1.0, 1.5])
    # 0.12 s without a tick are a silence for the filter
    assert [command(t) for t in (14, 15)] == pytest.approx([0.5 + 3.5 / 5, 0.5 + 7.0 / 5])


def test_the_action_of_a_chunk_is_corrected_once_in_a_step() -> None:
    """A chunk of 25 Hz; the correction is of the waypoint at the end of the step, as in training."""
    decide = Decider(needs_chunks=True)
    head = ActionHead(0.02, 0.02, decide, names=("a",), control_s=0.04)
    head.on_state(0.0, {"state": np.zeros(1, np.float32)}, 0.0)
    times_s = 0.04 * np.arange(1, 5)
    assert head.on_chunk(JointTrajectory(0.0, ("a",), np.array([[10.0], [20], [30], [40]]), times_s), 0.0)
    assert played(head, 9) == [110, 110, 115, 120, 125, 130, 135, 140, None]
    assert decide.saw == [(0, 10), (2, 20), (4, 30), (6, 40)]


def test_a_chunk_between_its_waypoints() -> None:
    """The next action is 1 period ahead; after the end, the last one counts."""
    player = ChunkPlayer()
    assert player.at(1.0) is None
    player.offer(np.array([[0.0], [10.0], [20.0]]), 0)
    assert [player.at(periods)[0] for periods in (1.0, 1.5, 2.0, 3.0, 9.0)] == [0.0, 5.0, 10.0, 20.0, 20.0]
    player.next()
    assert player.at(1.0)[0] == 10.0


def test_steps_keep_the_mean_rate() -> None:
    """30 Hz of 100 Hz: in 1000 commands, 300 decisions."""
    step, decisions = ControlStep(100.0 / 30.0), 0
    for _ in range(1000):
        if step.is_over:
            step.begin(np.zeros(1))
            decisions += 1
        step.next()
    assert decisions == 300


def command_at(head: ActionHead, arm_rad: float, now_s: float) -> float:
    """Command of a tick, with a living policy and the arm at this place."""
    head.on_heartbeat(True, now_s)
    head.on_state(now_s, None, now_s, np.array([arm_rad]))
    command = head.tick(now_s)
    assert command is not None
    return float(command[0])


def test_a_chunk_begins_at_the_arm_and_goes_on_from_the_last_command() -> None:
    """20 Hz of 50 Hz: the first waypoint, 0, is reached 50 ms after the state at which the arm was at 1. The
    filter would drop a first command that is far from the arm.
    """
    head = ActionHead(0.02, 0.02, names=("a",), control_s=0.05)
    times_s = np.array([0.05, 0.1])

    def offer(stamp_s: float, *waypoints: float) -> None:
        rows = np.array(waypoints)[:, None]
        assert head.on_chunk(JointTrajectory(stamp_s, ("a",), rows, times_s), stamp_s), head.refused

    tick = partial(command_at, head, 1.0)
    head.on_state(10.0, None, 10.0, np.array([1.0]))
    offer(10.0, 0.0, -1.0)
    assert [tick(10.0 + 0.02 * k) for k in range(1, 4)] == pytest.approx([0.6, 0.2, -0.2])
    offer(10.06, -0.2, -0.2)  # the chunk of the newest state: on from -0.2
    assert [tick(10.08), tick(10.1)] == pytest.approx([-0.2, -0.2])
    head.restart()  # a human has moved the arm to 1; the chunk's state is 20 ms old, and 0 is 30 ms away
    offer(10.1, 0.0, 0.0)
    assert tick(10.12) == pytest.approx(1.0 - 2 / 3)


def test_after_a_hold_commands_catch_up_at_the_speed_of_the_joints() -> None:
    """The filter would drop a first command that is far from the arm. 1 rad/s is 0.02 rad a period."""
    head = ActionHead(0.02, 0.02, names=("a",), speed_rad_s=np.array([1.0]))
    rows, times_s = np.array([[0.05], [0.06], [0.03], [1.0], [1.0]]), 0.02 * np.arange(1, 6)

    tick = partial(command_at, head, 0.0)
    head.on_state(10.0, None, 10.0, np.array([0.0]))
    assert head.on_chunk(JointTrajectory(10.0, ("a",), rows, times_s), 10.0)
    head.restart(catches_up=True)
    # Caught up at 0.03; from there on the policy's jumps are the filter's to limit.
    assert [tick(10.0 + 0.02 * k) for k in range(1, 5)] == pytest.approx([0.02, 0.04, 0.03, 1.0])
    head.restart()  # at a start, the filter is to see how far the policy is
    assert tick(10.1) == 1.0
