"""Trajectories that a controller joins without a jump, in a model of joint_trajectory_controller."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hardware.arms.bounds import JointLimits
from hardware.arms.waypoint_stream import WaypointStream
from tests.hardware.arms.jtc_model import State, between
from tests.hardware.arms.stream_run import moved, single, stream

PERIOD_S = 0.02
LIMITS = JointLimits((-1.0,), (1.0,), (2.0,))


@pytest.mark.parametrize(
    ("a", "b", "place", "speed"),
    [
        ((0.0, None, None), (1.0, 5.0, None), 0.5, 1.0),  # linear: one end has no velocity
        ((0.0, 0.0, None), (1.0, 0.0, 7.0), 0.5, 1.5),  # cubic: 3 s^2 - 2 s^3
        ((0.0, 0.0, 0.0), (1.0, 0.0, 0.0), 0.5, 1.875),  # quintic: 10 s^3 - 15 s^4 + 6 s^5
        ((0.0, 1.0, None), (0.0, -1.0, None), 0.25, 0.0),
    ],
)
def test_model_interpolates_as_documented(a: State, b: State, place: float, speed: float) -> None:
    """Half way in one second, computed by hand."""
    found = between(a, b, 1.0, 0.5)
    assert found[:2] == pytest.approx((place, speed))


def test_single_waypoints_jump_back() -> None:
    """With single waypoints the command goes back by at least the lag of the servos at every message."""
    for periods in (1.0, 2.0):
        assert moved(single(periods), from_desired=False).jump_mrad > 48.0
    assert (
        moved(single(2.0), from_desired=True).behind_ms
        > 1.9 * moved(single(1.0), from_desired=True).behind_ms
    )


def test_waypoint_stream_does_not_jump() -> None:
    """For every start of the controller: steps of 1 mrad per cycle, one period behind the target."""
    for from_desired in (False, True):
        motion = moved(stream(joins=False), from_desired)
        assert motion.jump_mrad == pytest.approx(1.0, abs=1e-6)
        assert motion.behind_ms == pytest.approx(20.0, abs=0.1)


def test_message_jitter_needs_interpolate_from_desired_state() -> None:
    """4 ms of jitter at 1 rad/s are 4 mrad; none with interpolate_from_desired_state."""
    assert moved(stream(joins=False), False, jitter_s=0.004).jump_mrad <= 5.0 + 1e-6
    assert moved(stream(joins=True), True, jitter_s=0.004).jump_mrad <= 1.0 + 1e-6


@given(st.lists(st.tuples(st.floats(-1.0, 1.0), st.floats(0.0, 0.2)), min_size=2, max_size=30), st.booleans())
def test_trajectories_are_valid_continuous_and_end_at_rest(
    steps: list[tuple[float, float]], joins: bool
) -> None:
    """For any targets and pauses: times grow, each trajectory begins where the one before is by then, and
    the last waypoint is inside the range and at rest.
    """
    made, now_s, before = WaypointStream(PERIOD_S, LIMITS), 0.0, None
    for target, pause_s in steps:
        points = made.next(np.array([target]), np.zeros(1), now_s)
        assert (np.diff(points.times_s) > 0.0).all()
        assert not points.velocity_rad_s[-1].any()
        assert np.abs(points.velocity_rad_s[1:]).max() <= 2.0
        assert np.abs(points.position_rad[-1]).max() <= 1.0
        if before is not None:
            place, speed = before[0].at(now_s - before[1])
            assert points.position_rad[0] == pytest.approx(place)
            assert points.velocity_rad_s[0] == pytest.approx(speed)
        before = points, now_s
        now_s += pause_s
