"""The head holds the arm when the policy whose chunk it plays is gone; nodes in virtual time at 50 Hz."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hardware.bus.in_process import InProcessWorld
from hardware.messages import Diagnostics, Flag, Floats
from hardware.nodes.action_head import MISSING
from hardware.nodes.arm_policy import ArmPolicyNode
from hardware.safety.reasons import Reason
from hardware.topics import CHUNK, HEARTBEAT, LOOP_STATUS, SAFE
from policies.deploy.bundle import Bundle
from tests.hardware.arm_descriptions import PERIOD_S, arm
from tests.hardware.bundles import arm_bundle, arm_env
from tests.hardware.nodes.cell import Cell, DelayedInference

KILL_S = 1.003


def running(chunks: Bundle, until_s: float = KILL_S, heartbeat_s: float | None = None) -> Cell:
    cell = Cell(chunks, heartbeat_s=heartbeat_s)
    cell.give(Floats(np.array([0.5])))
    cell.until(until_s)
    assert cell.filter.filter.reason is None
    return cell


def commanded(cell: Cell) -> int:
    """Number of commands with a waypoint."""
    return sum(len(message.position_rad) for message in cell.raw)


@pytest.mark.parametrize("kill_s", [1.0 + 0.001 * k for k in range(0, 21, 4)])
def test_arm_holds_within_two_periods_of_the_death_of_the_policy(chunks: Bundle, kill_s: float) -> None:
    """At any phase of commands and heartbeats. The chunk alone would last for 8 to 16 periods."""
    cell = running(chunks, kill_s)
    sent_s = list[float]()
    SAFE.subscribe(cell.bus["task"], lambda m, at: sent_s.append(at))
    cell.world.kill("policy")
    cell.until(kill_s + 2.0 * PERIOD_S)
    assert cell.filter.filter.reason is Reason.HOLD_REQUESTED
    assert sent_s  # the first braking command has left as well
    assert cell.said == [f"head: {MISSING}"]
    before = commanded(cell)
    cell.until(kill_s + 0.9)
    assert commanded(cell) == before
    cell.until(kill_s + 2.5)
    assert cell.filter.at_rest


def test_without_a_limit_the_chunk_is_played_to_its_end(chunks: Bundle) -> None:
    cell = running(chunks, heartbeat_s=0.0)
    cell.world.kill("policy")
    before = commanded(cell)
    cell.until(KILL_S + 1.0)
    assert commanded(cell) - before >= 5
    assert cell.filter.filter.reason is Reason.STALE_COMMAND
    assert not cell.said


def test_short_pause_of_the_policy_continues_the_chunk(chunks: Bundle) -> None:
    """A busy machine delays heartbeats by 60 ms: a hold, then the next action of the same chunk."""
    cell = running(chunks)
    beats = HEARTBEAT.publisher(cell.world.bus("busy"))
    cell.world.kill("policy")
    cell.until(KILL_S + 0.06)
    assert cell.filter.filter.reason is Reason.HOLD_REQUESTED
    before, left = commanded(cell), cell.head.head.player.left
    assert left > 2
    beats(Flag(True))
    cell.until(KILL_S + 0.081)
    assert commanded(cell) == before + 1
    assert cell.head.head.player.left == left - 1
    assert cell.filter.filter.reason is None


def test_chunk_of_a_dead_policy_is_not_continued_by_the_next_one(chunks: Bundle) -> None:
    """The next policy begins with a chunk of its own, from where the arm is now."""
    cell = running(chunks)
    cell.bus["policy"].close()
    cell.until(KILL_S + 0.3)
    again, before = cell.world.bus("policy"), commanded(cell)
    beats = HEARTBEAT.publisher(again)
    beats(Flag(True))
    cell.until(KILL_S + 0.4)
    assert commanded(cell) == before
    ArmPolicyNode(again, chunks, arm(), DelayedInference(cell.world, chunks, 0.03), True, cell.said.append)
    cell.until(KILL_S + 0.9)
    assert cell.filter.filter.reason is None


def test_program_without_heartbeats_may_follow_a_dead_policy(chunks: Bundle) -> None:
    cell = running(chunks)
    newest = cell.chunks[-1]
    cell.bus["policy"].close()
    cell.until(KILL_S + 0.3)
    before = commanded(cell)
    send = CHUNK.publisher(cell.world.bus("stranger"))
    send(type(newest)(cell.world.now(), newest.names, newest.position_rad, newest.times_s))
    cell.until(KILL_S + 0.6)
    assert commanded(cell) >= before + 10
    assert cell.filter.filter.reason is None


def test_dead_inference_leads_to_a_hold_at_once(chunks: Bundle) -> None:
    """Its node lives, and says that no more chunks come. The status names the reason."""
    cell, heard = running(chunks), list[Diagnostics]()
    LOOP_STATUS.subscribe(cell.bus["task"], lambda m, at: heard.append(m))
    cell.inference.fault = "the inference process has died"
    cell.until(KILL_S + 0.02)
    assert cell.filter.filter.reason is Reason.HOLD_REQUESTED
    cell.until(KILL_S + 0.9)
    told = [message.status[0] for message in heard if message.status[0].name == "head"]
    assert (told[-1].level, told[-1].message) == (1, MISSING)


def test_policy_that_ends_in_order_is_held_at_once(chunks: Bundle) -> None:
    cell = running(chunks)
    cell.policy.stop("SIGINT")
    cell.until(KILL_S + 0.005)
    assert cell.filter.filter.reason is Reason.HOLD_REQUESTED


def test_stopped_policy_is_held_at_once_and_starts_again(tmp_path: Path) -> None:
    """Chunks of 1.6 s, which the head would play to their end; ~/start goes on with a chunk of its own."""
    env = arm_env(control_hz=10.0)
    cell = running(arm_bundle(tmp_path / "slow", chunk=16, execute=16, env=env))
    call = cell.bus["task"].call
    assert call("policy/stop", 1.0) == (True, "stopped")
    before = commanded(cell)
    cell.until(KILL_S + 0.1)
    assert cell.filter.filter.reason is Reason.HOLD_REQUESTED
    cell.until(KILL_S + 0.3)
    assert commanded(cell) == before
    assert call("policy/start", 1.0) == (True, "inferring")
    cell.until(KILL_S + 0.6)
    assert commanded(cell) > before + 5
    assert cell.filter.filter.reason is None


def test_policy_that_does_not_decide_is_not_stopped(single: Bundle) -> None:
    """The head decides single actions, so it must not answer that the arm stops."""
    world = InProcessWorld()
    ArmPolicyNode(world.bus("policy"), single, arm(), DelayedInference(world, single, 0.03), True)
    sentence = "not stopped: single actions are decided by action_head; call its ~/stop"
    assert world.bus("task").call("policy/stop", 1.0) == (False, sentence)


def test_stopped_head_requests_no_hold(chunks: Bundle) -> None:
    """Somebody else may command then."""
    cell = running(chunks)
    cell.bus["task"].call("head/stop", 1.0)
    cell.until(KILL_S + 0.05)
    cell.world.kill("policy")
    cell.until(KILL_S + 0.5)
    assert all(len(message.position_rad) for message in cell.raw)


def test_single_step_head_needs_no_policy(single: Bundle) -> None:
    cell = Cell(single)
    beats = HEARTBEAT.publisher(cell.world.bus("someone"))
    cell.give(Floats(np.array([0.5])))
    beats(Flag(True))
    cell.until(2.0)
    assert commanded(cell) >= 90
