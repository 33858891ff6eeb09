"""Rules of the arm's filter, with numbers computed by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hardware.messages import JointTrajectory
from hardware.safety.phase import Phase
from hardware.safety.reasons import Effect, Reason
from tests.hardware.arm_descriptions import NAMES, PERIOD_S, command, state
from tests.hardware.safety.arm_bench import ZERO, Bench


def test_silent_until_armed() -> None:
    bench = Bench(armed=False)
    for _ in range(20):
        assert bench.tick(0.01) is None
    assert bench.filter.counts == {Reason.NOT_ARMED: 20}


def test_armed_filter_holds_the_measured_position() -> None:
    """Not zero: an arm at 0.4 rad is sent 0.4 rad while no command comes."""
    bench = Bench([0.4, -0.3, 0.2])
    for _ in range(200):
        assert np.array_equal(bench.tick(), [0.4, -0.3, 0.2])
    assert bench.filter.reason is Reason.WAITING


def test_slow_commands_pass_unchanged() -> None:
    """Otherwise the robot would behave differently from training."""
    bench = Bench()
    for i in range(100):
        goal = 0.3 * (1.0 - math.cos(0.05 * i))
        assert np.allclose(bench.tick(goal), goal, atol=1e-12)
    assert not bench.filter.counts or set(bench.filter.counts) == {Reason.WAITING}


def test_first_steps_keep_the_acceleration_limit() -> None:
    """20 rad/s^2 for 0.02 s is 0.4 rad/s, so 0.008 rad; then 0.8 rad/s, so 0.016 rad more."""
    bench = Bench()
    assert bench.tick(0.29) == pytest.approx([0.008] * 3)
    assert bench.tick(0.29) == pytest.approx([0.024] * 3)
    assert bench.filter.counts[Reason.ACCELERATION] == 2


def test_goal_beyond_the_range_ends_at_rest_at_its_end() -> None:
    """2 rad/s is 0.04 rad per period; no overshoot and no jerk at the end."""
    bench = Bench()
    bench.follow(0.25)
    places = [bench.tick(5.0)[0] for _ in range(120)]
    steps = np.diff(places)
    assert steps.max() == pytest.approx(0.04)
    assert np.abs(np.diff(steps)).max() <= 20.0 * PERIOD_S**2 + 1e-9
    assert max(places) <= 1.0 + 1e-12
    assert places[-1] == pytest.approx(1.0, abs=1e-3)
    assert {Reason.POSITION, Reason.VELOCITY, Reason.ACCELERATION} <= bench.filter.counts.keys()


def test_overshoot_of_a_sudden_stop_is_bounded() -> None:
    """After a stream at full speed ends, the arm passes the goal by at most v^2 / 2a = 0.1 rad, returns
    and rests.
    """
    bench = Bench([-0.9] * 3)
    for i in range(60):
        bench.tick(min(-0.9 + 0.0395 * i, 0.2))
    places = [bench.tick(0.2)[0] for _ in range(100)]
    assert max(places) <= 0.2 + 0.1 + 0.04
    assert abs(places[-1] - 0.2) < 1e-3
    crossings = np.diff(np.sign(np.round(np.array(places) - 0.2, 6)))
    assert np.count_nonzero(crossings) <= 2


def test_commands_stay_near_a_blocked_arm() -> None:
    """An arm blocked at 0 is never sent beyond step_rad = 0.2 plus the braking distance of 0.035."""
    bench = Bench()
    for _ in range(100):
        bench.tick(0.25)
        bench.place = ZERO
    for i in range(100):
        bench.tick(0.25 + 0.01 * i)
        bench.place = ZERO
    assert 0.2 <= np.abs(bench.sent).max() <= 0.235
    assert np.abs(bench.sent[-1]).max() == pytest.approx(0.2)
    assert bench.filter.counts[Reason.STEP] > 0


def test_arm_outside_its_range_moves_back() -> None:
    """From 1.4 rad, 0.4 beyond the range: every step is towards it, none is larger than 0.04 rad."""
    bench = Bench([1.4, 0.0, 0.0])
    bench.follow(0.0, ticks=1)
    places = [1.4, *(bench.tick([1.2, 0.0, 0.0])[0] for _ in range(60))]
    assert (np.diff(places) <= 1e-12).all()
    assert np.abs(np.diff(places)).max() <= 0.04 + 1e-9
    assert places[-1] == pytest.approx(1.0, abs=1e-3)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (command([0.0, math.nan, 0.0], 9), Reason.NOT_FINITE),
        (command([0.0, math.inf, 0.0], 9), Reason.NOT_FINITE),
        (command([0.0, 0.0], 9), Reason.WRONG_SHAPE),
        (command([[0.0] * 3] * 2, 9), Reason.WRONG_SHAPE),
        (command([], 9), Reason.WRONG_SHAPE),
        (command(ZERO, 9, names=("a", "b", "x")), Reason.WRONG_JOINTS),
        (command(ZERO, 9, names=("a", "b", "b")), Reason.WRONG_JOINTS),
        (command(ZERO, 1), Reason.OUT_OF_ORDER),
        (command(ZERO, 0), Reason.OUT_OF_ORDER),
        (JointTrajectory(0.0, NAMES, np.zeros((1, 3)), np.array([0.02])), Reason.OUT_OF_ORDER),
        (JointTrajectory(math.nan, NAMES, np.zeros((1, 3)), np.array([0.02])), Reason.NOT_FINITE),
        (JointTrajectory(9.0, NAMES, np.zeros((1, 3)), np.array([math.nan])), Reason.NOT_FINITE),
        (JointTrajectory(9.0, NAMES, np.zeros((1, 3)), np.zeros(0)), Reason.WRONG_SHAPE),
    ],
)
def test_invalid_command_is_dropped_as_a_whole(message: JointTrajectory, reason: Reason) -> None:
    """The arm continues to the target of the last valid command."""
    bench = Bench()
    for _ in range(2):
        bench.tick(0.1)
    assert not bench.filter.on_command(message, "policy", bench.now_s)
    assert bench.filter.counts[reason] == 1
    assert reason.effect is Effect.DROPPED
    assert (bench.tick(0.1) > 0.02).all()


def hold_request(number: int) -> JointTrajectory:
    """Trajectory without waypoints, with the stamp of this number."""
    return JointTrajectory(command(ZERO, number).stamp_s, NAMES, np.zeros((0, 3)), np.zeros(0))


def test_trajectory_without_waypoints_is_held_at_once() -> None:
    """The arm brakes in the same tick, not 2 periods after the last command; the next command is followed."""
    bench = Bench()
    moving = [bench.tick(0.25)[0] for _ in range(4)]
    assert bench.filter.on_command(hold_request(4), "policy", bench.now_s)
    bench.now_s += PERIOD_S
    braked = bench.filter.tick(bench.now_s)
    assert braked[0] - moving[-1] < moving[-1] - moving[-2]
    assert bench.filter.reason is Reason.HOLD_REQUESTED
    assert bench.filter.counts[Reason.HOLD_REQUESTED] == 1
    assert bench.filter.on_command(command(np.full(3, 0.25), 5), "policy", bench.now_s)
    bench.filter.tick(bench.now_s)
    assert bench.filter.reason is None


def test_hold_request_obeys_the_rules_of_commands() -> None:
    """Not one of the sender that is not in command, an earlier one, or one before arming."""
    bench = Bench()
    for _ in range(4):
        bench.tick(0.1)
    for message, source, reason in (
        (hold_request(9), "teleop", Reason.NOT_INTERVENING),
        (hold_request(1), "policy", Reason.OUT_OF_ORDER),
    ):
        assert not bench.filter.on_command(message, source, bench.now_s)
        assert bench.filter.dropped is reason
    bench.tick(0.1)
    assert bench.filter.reason is None
    unarmed = Bench(armed=False)
    assert not unarmed.filter.on_command(hold_request(0), "policy", unarmed.now_s)


def test_hold_request_before_any_command_is_a_wait() -> None:
    """After arming, waiting for the first command has no limit."""
    bench = Bench()
    assert bench.filter.on_command(hold_request(0), "policy", bench.now_s)
    bench.follow(0.0, ticks=1)
    assert bench.filter.phase is Phase.ARMED


def test_joints_are_matched_by_name() -> None:
    """State and command in different orders, with a gripper that the description does not have."""
    bench = Bench(armed=False)
    bench.filter.on_state(state([0.3, 7.0, 0.1, 0.2], ("c", "gripper", "a", "b")), bench.now_s)
    assert bench.filter.arm(bench.now_s)[0]
    bench.filter.on_command(command([0.3, 0.1, 0.2], names=("c", "a", "b")), "policy", bench.now_s)
    assert bench.filter.tick(bench.now_s) == pytest.approx([0.1, 0.2, 0.3])


def test_first_command_must_be_near_the_arm() -> None:
    """The limit is 0.3 rad here: a policy trained for another pose does not start."""
    bench = Bench()
    assert np.array_equal(bench.tick([0.31, 0.0, 0.0]), ZERO)
    assert bench.filter.counts[Reason.JUMP_AT_START] == 1
    assert bench.tick([0.29, 0.0, 0.0])[0] > 0.0
    assert bench.tick([0.8, 0.0, 0.0])[0] > 0.0  # later ones are limited, not refused


def test_human_commands_replace_the_policy() -> None:
    """During an intervention the policy is ignored; the human's first command also has to lie near the
    arm.
    """
    bench = Bench()
    bench.follow(0.2)
    bench.filter.on_intervention(True)
    bench.tick(0.29)
    assert bench.filter.counts[Reason.OUTRANKED] == 1
    bench.tick(0.9, source="teleop")
    assert bench.filter.counts[Reason.JUMP_AT_START] == 1
    for i in range(20):
        bench.tick(0.2 - 0.0002 * i**2, source="teleop")
    assert (bench.place < 0.19).all()
    bench.filter.on_intervention(False)
    bench.tick(0.15, source="teleop")
    assert bench.filter.counts[Reason.NOT_INTERVENING] == 1


def test_pushed_arm_keeps_the_command_limits() -> None:
    """An arm pushed as fast as states are accepted: commands keep the limits of speed and acceleration."""
    bench = Bench()
    limits, sent = bench.filter.limits, [bench.place.copy()]
    for i in range(60):
        bench.now_s += PERIOD_S
        bench.filter.on_state(state(np.full(3, 0.9 * min(1.0, i / 12))), bench.now_s)
        out = bench.filter.tick(bench.now_s)
        assert out is not None
        sent.append(out)
    speed = np.diff(sent, axis=0) / PERIOD_S
    assert np.abs(speed).max() <= limits.velocity_rad_s.max() + 1e-6
    assert np.abs(np.diff(speed, axis=0)).max() / PERIOD_S <= limits.acceleration_rad_s2.max() + 1e-6
    assert sent[-1] == pytest.approx([0.8] * 3, abs=0.1)  # within a step of the measured 0.9, at rest
    assert np.array_equal(sent[-1], sent[-2])


def test_workspace_limits_the_tool() -> None:
    """The tool may be 0.35 m in front; 0.4 sin(0.2) + 0.4 sin(1.2) = 0.45 m is commanded. It rests
    before the wall.
    """
    box = {"low_m": [-1.0, -1.0, -0.1], "high_m": [0.35, 1.0, 1.0]}
    bench = Bench(workspace=box)
    assert bench.filter.workspace is not None
    for i in range(300):
        bench.tick([0.0, min(0.005 * i, 0.2), min(0.005 * i, 1.0)])
        assert bench.filter.workspace.excess_m(bench.place) == 0.0
    assert bench.filter.counts[Reason.WORKSPACE] > 0
    steps = np.diff(np.array(bench.sent), axis=0)
    assert np.abs(np.diff(steps, axis=0)).max() <= 20.0 * PERIOD_S**2 + 1e-9
