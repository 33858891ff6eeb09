"""The longest hold of an arm's filter: after it the arm stops, and moves again only after ~/arm."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from hardware.messages import JointTrajectory
from hardware.safety.arm_filter import ArmFilter
from hardware.safety.phase import Phase, PhaseMachine
from hardware.safety.reasons import Reason
from tests.hardware.arm_descriptions import NAMES, PERIOD_S, arm, command, state

HOLD_S, TICK_S = 1.0, 0.005
STILL = np.zeros(3)


def hold_request(number: int) -> JointTrajectory:
    return JointTrajectory(1.0 + number, NAMES, np.zeros((0, 3)), np.zeros(0))


@settings(max_examples=40, deadline=None)
@given(
    gaps_s=st.lists(st.floats(0.002, 0.3), min_size=1, max_size=12),
    requests_s=st.lists(st.floats(0.005, 0.6), max_size=4),
)
def test_hold_becomes_a_stop_whatever_its_reasons(gaps_s: list[float], requests_s: list[float]) -> None:
    """States that come late and requests for a hold change the reason; the second after which the arm stops
    counts from the last command.
    """
    guard = ArmFilter(arm(), HOLD_S)
    guard.on_state(state(STILL), 0.0)
    guard.arm(0.0)
    assert guard.on_command(command(STILL, 0), "policy", 0.0)
    guard.tick(0.0)
    states_s = np.cumsum(np.resize(gaps_s, 1000))
    asked_s = np.cumsum(requests_s)
    now_s, received, number = 0.0, 0, 1
    while now_s < 2.0 * PERIOD_S + HOLD_S + 2.0 * TICK_S:
        now_s += TICK_S
        while states_s[received] <= now_s:
            received += 1
            guard.on_state(state(STILL), now_s)
        while number <= len(asked_s) and asked_s[number - 1] <= now_s:
            guard.on_command(hold_request(number), "policy", now_s)
            number += 1
        guard.tick(now_s)
    assert guard.phase is not Phase.ARMED
    guard.on_state(state(STILL), now_s)
    assert not guard.on_command(command(STILL + 0.1, 99), "policy", now_s), "the old session goes on"


def test_hold_lasts_as_long_as_its_first_reason_counts() -> None:
    """Reasons that alternate at every look do not put off the stop."""
    machine = PhaseMachine(hold_s=HOLD_S, stop_ticks=100)
    machine.arm(0.0)
    machine.follow()
    machine.hold(Reason.STALE_COMMAND, 5.0)
    machine.hold(Reason.STALE_STATE, 5.9)
    assert not machine.held_too_long(6.0)
    machine.hold(Reason.STALE_COMMAND, 6.1)
    assert machine.held_too_long(6.1)


def test_wait_for_the_first_command_is_no_part_of_a_hold() -> None:
    """After a wait of any length, also after a human's takeover, a hold may last its second."""
    machine = PhaseMachine(hold_s=HOLD_S, stop_ticks=100)
    machine.arm(0.0)
    machine.hold(Reason.STALE_STATE, 50.0)
    assert not machine.held_too_long(51.0)
    machine.hold(Reason.WAITING, 51.5)
    assert not machine.held_too_long(1e6)
    machine.hold(Reason.STALE_STATE, 100.0)
    assert not machine.held_too_long(101.0)
    assert machine.held_too_long(101.1)
    machine.follow()
    machine.hold(Reason.STALE_COMMAND, 200.0)
    assert not machine.held_too_long(200.5)
