"""Bounds of setpoints, applied by quadcopter drivers."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hardware.quads.bounds import QuadLimits, bounded, limited_tilt, motors_off, yaw_of
from hardware.quads.crazyflie.firmware import thrust_number
from hardware.quads.crazyflie.packets import roll_pitch
from hardware.quads.px4.mavlink_messages import yaw_ned
from hardware.states import Attitude, BodyRates, Hover, MotorCommand, Position
from robo_rl.core.errors import ConfigError, DriverError
from robo_rl.core.flight.frames import quat_product, rotation_of

LIMITS = QuadLimits(rate_rad_s=3.0, tilt_rad=0.5, speed_m_s=1.0, thrust_low=0.1, thrust_high=0.8)
anything = st.floats(allow_nan=True, allow_infinity=True) | st.floats(-50.0, 50.0)
quaternions = (
    st.lists(st.floats(-1.0, 1.0), min_size=4, max_size=4)
    .map(np.array)
    .filter(lambda q: np.linalg.norm(q) > 0.1)
    .map(lambda q: q / np.linalg.norm(q))
)


@given(st.lists(anything, min_size=3, max_size=3), anything)
def test_no_rates_or_thrust_beyond_the_limits_are_sent(rates: list[float], thrust: float) -> None:
    setpoint = BodyRates(np.array(rates), thrust)
    if not np.isfinite([*rates, thrust]).all():
        with pytest.raises(DriverError, match="must be finite"):
            bounded(setpoint, LIMITS, "it")
        return
    sent = bounded(setpoint, LIMITS, "it")
    assert isinstance(sent, BodyRates)
    assert np.abs(sent.rates_rad_s).max() <= 3.0
    assert 0.1 <= sent.thrust <= 0.8 or motors_off(setpoint)


@given(quaternions)
def test_tilt_is_limited_in_its_own_direction(quat: np.ndarray) -> None:
    """Level or upside down: the result is tilted by at most 0.5 rad, to the same side, with the same
    heading.
    """
    sent = bounded(Attitude(quat, 0.5), LIMITS, "it")
    assert isinstance(sent, Attitude)
    up, before = rotation_of(sent.quat_wxyz)[:, 2], rotation_of(quat)[:, 2]
    assert np.linalg.norm(sent.quat_wxyz) == pytest.approx(1.0)
    assert math.acos(min(1.0, up[2])) <= 0.5 + 1e-9
    if before[2] > math.cos(0.5) + 1e-9:
        assert rotation_of(sent.quat_wxyz) == pytest.approx(rotation_of(quat), abs=1e-9)
    elif math.hypot(*before[:2]) > 1e-3:
        assert up[:2] / math.hypot(*up[:2]) == pytest.approx(before[:2] / math.hypot(*before[:2]), abs=1e-6)


@pytest.mark.parametrize("off", [0.0, 1e-13, 1e-10, 1e-8, 1e-5])
def test_tilt_is_limited_close_to_upside_down(off: float) -> None:
    """Half a turn about an axis between x and y, and `off` rad more."""
    turned = math.pi / 2 + off / 2
    axis = np.array([0.37506962, 0.92699664, 0.0]) / math.hypot(0.37506962, 0.92699664)
    cut = limited_tilt(np.array([math.cos(turned), *(math.sin(turned) * axis)]), 0.5)
    assert math.acos(rotation_of(cut)[2, 2]) == pytest.approx(0.5, abs=1e-12)


def test_bounds_match_hand_computation() -> None:
    """Nose 1 rad to the left, tilted forwards by 0.9: forwards by 0.5, same heading. PX4 counts from
    north.
    """
    yaw = np.array([math.cos(0.5), 0.0, 0.0, math.sin(0.5)])
    forwards = np.array([math.cos(0.45), 0.0, math.sin(0.45), 0.0])
    cut = limited_tilt(quat_product(yaw, forwards), 0.5)
    assert yaw_of(cut) == pytest.approx(1.0)
    assert roll_pitch(cut) == pytest.approx((0.0, 0.5))
    assert [yaw_ned(0.0), yaw_ned(math.pi / 2), yaw_ned(math.pi)] == pytest.approx(
        [math.pi / 2, 0.0, -math.pi / 2]
    )
    assert [thrust_number(0.5), thrust_number(1.0), thrust_number(0.01)] == [32768, 60000, 0]
    slow = bounded(Hover(np.array([3.0, 4.0]), 9.0, 1.0), LIMITS, "it")
    assert isinstance(slow, Hover)
    assert (slow.velocity_m_s.tolist(), slow.yaw_rate_rad_s) == (
        [pytest.approx(0.6), pytest.approx(0.8)],
        3.0,
    )


def test_motors_can_always_be_switched_off() -> None:
    """No thrust and no rates pass also where a policy's thrust is at least 0.1; anything else is bounded."""
    off = BodyRates(np.zeros(3), 0.0)
    assert motors_off(off)
    assert bounded(off, LIMITS, "it") is off
    for other in (BodyRates(np.array([0.0, 0.0, 0.01]), 0.0), BodyRates(np.zeros(3), 0.01)):
        sent = bounded(other, LIMITS, "it")
        assert isinstance(sent, BodyRates)
        assert (motors_off(other), sent.thrust) == (False, 0.1)


def test_invalid_setpoints_are_refused() -> None:
    with pytest.raises(DriverError, match="Export it as C"):
        bounded(MotorCommand(np.zeros(4)), LIMITS, "it")
    with pytest.raises(DriverError, match=r"has length 2\.000, expected 1"):
        bounded(Attitude(np.array([2.0, 0.0, 0.0, 0.0]), 0.5), LIMITS, "it")
    with pytest.raises(DriverError, match="must be finite and have shape"):
        bounded(Position(np.zeros(2)), LIMITS, "it")
    with pytest.raises(DriverError, match="takes no ndarray"):
        bounded(np.zeros(4), LIMITS, "it")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"expected a rate above 0 and .* a tilt in \(0, 1\.57\) rad"):
        QuadLimits(3.0, 2.0, 1.0)


@pytest.mark.parametrize("rate_rad_s", [0.0, -1.0, 36.0, 240.0, math.inf, math.nan])
def test_rates_in_degrees_are_no_limit(rate_rad_s: float) -> None:
    """240, meant as deg/s, would let every command of a policy pass."""
    with pytest.raises(ConfigError, match=r"up to 35 rad/s.*Divide degrees by 57\.296"):
        QuadLimits(rate_rad_s)
    with pytest.raises(ConfigError, match="up to 100 m/s"):
        QuadLimits(3.0, speed_m_s=math.inf)
    QuadLimits(35.0)
