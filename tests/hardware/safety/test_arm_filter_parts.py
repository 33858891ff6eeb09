"""Parts of the arm's filter, each tested alone."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from hardware.safety.command_acceptance import CommandAcceptance
from hardware.safety.limits import ArmLimits, Move, Target, next_move
from hardware.safety.message_parsing import StampOrder
from hardware.safety.phase import Phase, PhaseMachine
from hardware.safety.reasons import Reason
from hardware.safety.state_acceptance import StateAcceptance
from hardware.safety.timing import SendSchedule
from tests.hardware.arm_descriptions import PERIOD_S, arm, command, state

STILL = np.zeros(3)


def test_commands_are_accepted_in_order_and_once() -> None:
    commands = CommandAcceptance(arm(), look_s=0.0)
    assert commands.take(command(STILL, 5), "policy", 0.0, STILL) is None
    for number in (5, 4):
        again = commands.take(command(STILL, number), "policy", 0.0, STILL)
        assert again is Reason.OUT_OF_ORDER
    assert commands.take(command(STILL, 6), "policy", 0.0, STILL) is None


def test_command_is_followed_for_two_periods() -> None:
    commands = CommandAcceptance(arm(), look_s=0.0)
    commands.take(command(STILL), "policy", 10.0, STILL)
    assert commands.is_fresh(10.0 + 2.0 * PERIOD_S)
    assert not commands.is_fresh(10.0 + 2.1 * PERIOD_S)
    assert not commands.is_fresh(9.9), "received in the future"


def test_takeover_drops_the_policy_command() -> None:
    """And the human's first command has to lie near the arm, as the policy's had."""
    commands = CommandAcceptance(arm(), look_s=0.0)
    commands.take(command(STILL), "policy", 0.0, STILL)
    commands.intervene(True)
    assert commands.target is None
    assert commands.take(command(STILL, 1), "policy", 0.0, STILL) is Reason.OUTRANKED
    assert commands.take(command(STILL + 0.9), "teleop", 0.0, STILL) is Reason.JUMP_AT_START
    assert commands.take(command(STILL), "teleop", 0.0, STILL) is None


def test_impossible_states_are_refused() -> None:
    """A joint may be 1 rad outside its range of 1 rad, no further; a jump counts only while armed."""
    robot = arm()
    states = StateAcceptance(robot, ArmLimits.of(robot), look_s=0.0)
    assert states.take(state(STILL + 2.01), 0.0, armed=False) is Reason.BAD_STATE
    assert states.fault
    assert states.take(state(STILL + 1.99), 0.0, armed=False) is None
    assert not states.fault
    assert states.take(state(STILL), PERIOD_S, armed=True) is Reason.STATE_JUMP
    assert states.take(state(STILL), PERIOD_S, armed=False) is None


def test_stop_ends_once_the_arm_rests() -> None:
    machine = PhaseMachine(hold_s=1.0, stop_ticks=100)
    machine.arm(0.0)
    machine.stop(Reason.REQUESTED)
    assert machine.refusal(emergency=False, two_publishers=False, state_is_fresh=True) is Reason.STOPPING
    for at_rest in (True, True, False, True, True):
        machine.note_stopping_command(at_rest)
        assert machine.phase is Phase.STOPPING
    machine.note_stopping_command(at_rest=True)
    assert machine.phase is Phase.DISARMED


def test_stop_ends_without_rest() -> None:
    machine = PhaseMachine(hold_s=1.0, stop_ticks=100)
    machine.arm(0.0)
    machine.stop(Reason.REQUESTED)
    for _ in range(101):
        assert machine.phase is Phase.STOPPING
        machine.note_stopping_command(at_rest=False)
    assert machine.phase is Phase.DISARMED


def test_hold_is_limited_but_waiting_is_not() -> None:
    machine = PhaseMachine(hold_s=1.0, stop_ticks=100)
    machine.arm(0.0)
    assert not machine.held_too_long(1e6)
    machine.follow()
    assert machine.hold(Reason.STALE_COMMAND, 5.0)
    assert not machine.hold(Reason.STALE_COMMAND, 6.5)
    assert not machine.held_too_long(6.0)
    assert machine.held_too_long(6.1)


def test_step_time_is_at_most_two_periods() -> None:
    schedule = SendSchedule(PERIOD_S)
    assert schedule.due_s(0.0, following=True) == PERIOD_S
    schedule.sent(0.0)
    assert schedule.due_s(1.2 * PERIOD_S, following=True) is None, "the next command is waited for"
    assert schedule.due_s(1.2 * PERIOD_S, following=False) == pytest.approx(1.2 * PERIOD_S)
    assert schedule.due_s(50.0, following=True) == 2.0 * PERIOD_S
    schedule.request_now()
    assert schedule.due_s(0.1 * PERIOD_S, following=True) is None
    assert schedule.due_s(0.3 * PERIOD_S, following=True) == pytest.approx(0.3 * PERIOD_S)


@pytest.mark.parametrize("goal", [0.5, -5.0, 1e9])
def test_commands_keep_speed_and_acceleration_limits(goal: float) -> None:
    """2 rad/s and 20 rad/s^2 at 50 Hz, and a range of 1 rad, for an arm that follows its commands."""
    limits, last = ArmLimits.of(arm()), Move(STILL, STILL)
    for _ in range(200):
        move = next_move(last, last.position_rad, Target(STILL + goal, STILL), PERIOD_S, limits, None)
        assert (np.abs(move.position_rad - last.position_rad) <= 2.0 * PERIOD_S + 1e-9).all()
        assert (np.abs(move.speed_rad_s - last.speed_rad_s) <= 20.0 * PERIOD_S + 1e-9).all()
        last = move
    np.testing.assert_allclose(last.position_rad, STILL + math.copysign(min(abs(goal), 1.0), goal), atol=1e-3)


def test_arm_brakes_without_a_target() -> None:
    limits: Any = ArmLimits.of(arm())
    last = Move(STILL, STILL + 1.0)
    for _ in range(10):
        last = next_move(last, last.position_rad, None, PERIOD_S, limits, None)
    assert not last.speed_rad_s.any()
    assert (last.position_rad < 0.05).all(), "v^2 / 2a is 25 mm at 1 rad/s"


def test_commands_are_ordered_by_their_stamps() -> None:
    """Without stamps by receipt. A command without a stamp does not follow one with a stamp."""
    order = StampOrder()
    for stamp_s, refused in [(5.0, None), (7.0, None), (7.0, Reason.OUT_OF_ORDER), (6.0, Reason.OUT_OF_ORDER),
                             (np.nan, Reason.NOT_FINITE), (np.inf, Reason.NOT_FINITE)]:  # fmt: skip
        assert order.check(stamp_s) is refused
        if refused is None:
            order.take(stamp_s)
    assert order.check(0.0) is Reason.OUT_OF_ORDER
    order.forget()
    for _ in range(3):
        assert order.check(0.0) is None
        order.take(0.0)
    order.take(3.0)
    assert order.check(0.0) is Reason.OUT_OF_ORDER


@pytest.mark.parametrize(("pause_s", "refused"), [(0.1, None), (0.11, Reason.JUMP_AT_START)])
def test_first_command_after_a_pause_must_be_near_the_arm(pause_s: float, refused: Reason | None) -> None:
    """A pause of 5 periods of 20 ms: a sender that was reset or was elsewhere does not lead the arm away."""
    commands = CommandAcceptance(arm(), look_s=0.0)
    assert commands.take(command(STILL, 0), "policy", 10.0, STILL) is None
    assert commands.take(command(STILL + 0.5, 1), "policy", 10.0 + pause_s, STILL) is refused
    assert commands.take(command(STILL + 0.2, 2), "policy", 10.0 + pause_s, STILL) is None
