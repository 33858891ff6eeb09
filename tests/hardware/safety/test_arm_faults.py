"""The arm's filter when messages stop or are wrong, and at its end, with numbers computed by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hardware.messages import JointState
from hardware.safety.arm_filter import ArmFilter
from hardware.safety.phase import Phase
from hardware.safety.reasons import Reason
from tests.hardware.arm_descriptions import arm, command, state
from tests.hardware.safety.arm_bench import Bench


def test_silent_policy_leads_to_a_hold_then_a_stop() -> None:
    """Brake first: from 1 rad/s at 20 rad/s^2 the arm rests after 0.05 s; then it holds; after 1 s it
    stops.
    """
    bench = Bench([-0.9] * 3)
    for i in range(40):
        bench.tick(-0.9 + 0.0002 * i**2)
    assert bench.tick() is None  # one period late: nothing is wrong yet
    bench.tick()
    bench.tick()
    assert bench.filter.reason is Reason.STALE_COMMAND
    for _ in range(5):
        bench.tick()
    rest = bench.sent[-1]
    for _ in range(10):
        assert np.array_equal(bench.tick(), rest)
    assert (bench.tick(rest + 0.01) > rest).all()  # it goes on by itself
    for _ in range(70):
        bench.tick()
    assert bench.filter.phase is Phase.DISARMED
    assert bench.filter.reason is Reason.STALE_COMMAND
    assert bench.tick(rest) is None


def test_silent_robot_leads_to_a_hold_then_a_stop() -> None:
    """Commands continue without states: from the fourth period on they are not followed."""
    bench = Bench()
    bench.follow(0.2)
    start = bench.sent[-1]
    for i in range(1, 4):
        assert (bench.tick(start + 0.003 * i, hear=False) > start).all()
    rest = [bench.tick(start + 0.2, hear=False) for _ in range(10)]
    assert bench.filter.reason is Reason.STALE_STATE
    assert np.array_equal(rest[-1], rest[-2])
    assert (rest[-1] < start + 0.02).all()
    for _ in range(60):
        bench.tick(0.2, hear=False)
    assert bench.filter.phase is Phase.DISARMED
    assert bench.filter.arm(bench.now_s) == (False, "not armed: no fresh state of the robot has arrived")


def test_the_emergency_stop_is_latched_until_armed_again() -> None:
    bench = Bench()
    bench.follow(0.2)
    bench.filter.on_emergency(True)
    for _ in range(10):
        bench.tick(0.2)
    assert bench.filter.phase is Phase.DISARMED
    assert bench.filter.reason is Reason.EMERGENCY
    assert bench.filter.arm(bench.now_s) == (
        False,
        "not armed: the emergency stop is still pressed: release it, then arm",
    )
    bench.filter.on_emergency(False)
    assert bench.tick(0.2) is None
    assert bench.filter.arm(bench.now_s)[0]
    assert np.array_equal(bench.tick(), bench.place)


@pytest.mark.parametrize("now_s", [5.0, math.nan, -math.inf, math.inf])
def test_clock_jump_stops_the_arm(now_s: float) -> None:
    """All ages would be wrong: brake, send the stop, fall silent; then a new state is needed."""
    bench = Bench([-0.9] * 3)
    for i in range(40):
        bench.tick(-0.9 + 0.0002 * i**2)
    speed = np.abs(bench.sent[-1] - bench.sent[-2])
    out = bench.filter.tick(now_s)
    assert (np.abs(out - bench.sent[-1]) < speed).all()
    bench.now_s = 5.0
    bench.tick(0.9, hear=False)
    for _ in range(20):
        bench.tick(0.9)
    assert bench.filter.phase is Phase.DISARMED
    assert bench.filter.reason is Reason.CLOCK


def test_malformed_state_is_dropped() -> None:
    bench = Bench()
    bench.follow(0.2)
    bench.filter.on_state(state([math.nan, 0.2, 0.2]), bench.now_s + 0.02)
    bench.filter.on_state(state([0.2, 0.2], ("a", "b")), bench.now_s + 0.02)
    bench.filter.on_state(state([0.2, 2.1, 0.2]), bench.now_s + 0.02)
    assert bench.filter.counts[Reason.BAD_STATE] == 3
    assert bench.tick(0.2) == pytest.approx([0.2] * 3, abs=1e-3)


@pytest.mark.parametrize("jump_rad", [0.53, -0.53, 0.9])
def test_state_jump_stops_the_arm(jump_rad: float) -> None:
    """An encoder fault, or two publishers of states: the arm brakes from the last command, and stops."""
    bench = Bench()
    bench.follow(0.2)
    bench.sent.clear()
    for i in range(40):
        jump = jump_rad if i % 2 else 0.0
        bench.filter.on_state(state([0.2 + jump, 0.2, 0.2]), bench.now_s + 0.001)
        bench.tick(hear=False, after_s=0.01)
    assert bench.filter.counts[Reason.STATE_JUMP] == 1
    assert bench.filter.phase is Phase.DISARMED
    assert np.abs(np.diff(bench.sent, axis=0)).max() <= 1e-3


@pytest.mark.parametrize(
    ("message", "sentence"),
    [
        (
            state([0.0, 0.0, 0.0], ("a", "B", "c")),
            "joint_states lacks b of the robot's description; it has a, B, c",
        ),
        (state([0.0, 0.0, 0.0, 0.0], ("a", "a", "b", "c")), "names a joint twice"),
        (state([0.0, math.nan, 0.0]), "not a finite number"),
        (state([0.0, 7.0, 0.0]), "joint_states has b at 7 rad, far outside of -1 to 1"),
    ],
)
def test_refused_arming_names_the_fault_of_the_states(message: JointState, sentence: str) -> None:
    """With other joint names, "no fresh state" would make the user check the network cable."""
    filter_ = ArmFilter(arm())
    assert filter_.arm(0.0) == (False, f"not armed: {Reason.NO_STATE.sentence}")
    filter_.on_state(message, 0.0)
    armed, why = filter_.arm(0.001)
    assert not armed
    assert sentence in why
    filter_.on_state(state([0.0, 0.0, 0.0]), 0.01)
    filter_.on_state(message, 0.011)  # a gripper that tells its own joints on the same topic
    assert not filter_.fault
    assert filter_.arm(0.012)[0]


def test_arming_reports_whether_commands_are_coming() -> None:
    """A running policy moves the arm as soon as the filter is armed, which the answer has to say."""
    filter_ = ArmFilter(arm())
    filter_.on_state(state([0.0, 0.0, 0.0]), 0.0)
    filter_.on_command(
        command([0.0, 0.0, 0.0]), "teleop", 0.0
    )  # nobody has taken over: not heard after arming, either
    assert filter_.arm(0.001) == (True, "armed: holding position until the first command")
    filter_ = ArmFilter(arm())
    filter_.on_state(state([0.0, 0.0, 0.0]), 0.0)
    filter_.on_command(command([0.0, 0.0, 0.0]), "policy", 0.0)
    assert filter_.arm(0.001) == (True, "armed: commands of policy come and are followed at once")


def test_stop_sends_the_final_position_three_times() -> None:
    """SIGTERM: brake, send the final position three times, then nothing."""
    bench = Bench([-0.9] * 3)
    for i in range(40):
        bench.tick(-0.9 + 0.0002 * i**2)
    bench.filter.stop(Reason.SHUTDOWN)
    outs = [bench.tick(0.9) for _ in range(20)]
    sent = [out for out in outs if out is not None]
    assert 3 <= len(sent) < 20
    assert np.array_equal(sent[-1], sent[-3])
    assert bench.filter.finish() is None


def test_last_command_repeats_the_sent_position() -> None:
    """No time to brake (Ctrl-C twice): the position sent last, once more."""
    bench = Bench()
    bench.follow(0.2)
    before = bench.sent[-1]
    assert np.array_equal(bench.filter.finish(), before)
    assert bench.tick(0.2) is None
