"""Position and velocity bounds of an arm's driver: no command jumps or leaves the limits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hardware.arms.bounds import CommandLimiter, JointLimits, bound, check_names, with_max_velocity
from hardware.states import JointCommand
from robo_rl.core.errors import ConfigError, DriverError

LIMITS = JointLimits((-2.0, 0.0), (2.0, 1.0), (3.0, 0.5))
anything = st.floats(allow_nan=True, allow_infinity=True) | st.floats(-10.0, 10.0)
pairs = st.lists(anything, min_size=2, max_size=2).map(np.array)
places = st.lists(st.floats(-7.0, 7.0), min_size=2, max_size=2).map(np.array)


@given(places, st.lists(st.tuples(st.floats(0.0, 5.0), pairs), max_size=30))
def test_no_command_sequence_jumps_the_arm(
    start: np.ndarray, commands: list[tuple[float, np.ndarray]]
) -> None:
    """Late, early, huge and non-finite commands: a step is at most velocity * 2 periods, and outside the
    limits only inwards.
    """
    now_s = [0.0]
    bounded = CommandLimiter("arm", LIMITS, 100.0, clock=lambda: now_s[0])
    at = start
    for wait_s, goal in commands:
        now_s[0] += wait_s
        if not np.isfinite(goal).all():
            with pytest.raises(DriverError, match="not finite"):
                bounded.next(JointCommand(goal), start)
            continue
        sent = bounded.next(JointCommand(goal), start)
        assert (np.abs(sent - at) <= np.array(LIMITS.velocity_rad_s) * 0.02 + 1e-12).all()
        outside = np.maximum(np.array(LIMITS.low_rad) - sent, sent - np.array(LIMITS.high_rad))
        before = np.maximum(np.array(LIMITS.low_rad) - at, at - np.array(LIMITS.high_rad))
        assert (outside <= np.maximum(before, 0.0) + 1e-12).all()
        at = sent


def test_bounds_match_hand_computation() -> None:
    """Joint 0 may turn 0.03 rad in 10 ms, joint 1 0.005 rad. From outside its limits an arm moves back
    without a jump.
    """
    inside = bound(np.array([9.0, 0.5]), np.array([0.0, 0.498]), 0.01, LIMITS)
    assert inside == pytest.approx([0.03, 0.5])
    assert bound(np.array([9.0, -9.0]), np.array([5.0, -1.0]), 0.01, LIMITS) == pytest.approx([4.97, -0.995])


def test_after_a_pause_the_limiter_starts_at_the_measured_position() -> None:
    bounded = CommandLimiter("arm", LIMITS, 100.0, clock=lambda: 0.0)
    bounded.next(JointCommand(np.array([1.0, 1.0])), np.zeros(2))
    bounded.reset()
    assert bounded.next(JointCommand(np.array([1.0, 1.0])), np.array([0.5, 0.5]))[0] == pytest.approx(0.53)


def test_invalid_commands_are_refused() -> None:
    with pytest.raises(ConfigError, match="low < high"):
        JointLimits((1.0,), (1.0,), (1.0,))
    with pytest.raises(ConfigError, match="above 0"):
        with_max_velocity(LIMITS, float("nan"))
    with pytest.raises(ConfigError, match="rate_hz=0"):
        CommandLimiter("arm", LIMITS, 0.0)
    with pytest.raises(DriverError, match=r"has no joint elbow, wrist; it reports shoulder"):
        check_names("the arm", ["shoulder"], ["shoulder", "elbow", "wrist"])
    with pytest.raises(DriverError, match="expects JointCommand, found ndarray"):
        CommandLimiter("arm", LIMITS, 100.0).next(np.zeros(2), np.zeros(2))  # type: ignore[arg-type]
    assert with_max_velocity(LIMITS, 1.0).velocity_rad_s == (1.0, 0.5)


def test_non_finite_measured_position_sends_nothing() -> None:
    """The first command starts from the measured position, so its target would be NaN."""
    bounded = CommandLimiter("the arm", LIMITS, 100.0, clock=lambda: 0.0)
    with pytest.raises(DriverError, match="the arm reports a position that is not finite"):
        bounded.next(JointCommand(np.zeros(2)), np.array([np.nan, 0.0]))
    assert bounded.next(JointCommand(np.zeros(2)), np.zeros(2)).tolist() == [0.0, 0.0]
