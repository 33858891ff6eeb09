"""Formulas of actuator models compared with numbers computed by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy import ndarray

from sim.actuators.law import lag_share, lagged, motor_line, within_play


def test_a_lag_answers_a_step_by_its_formula() -> None:
    """u(t) = 1 - exp(-t / tau) at every sub-step up to rounding, for any step: three lags, 40 steps of 5
    ms.
    """
    lag_s = np.array([0.005, 0.03, 0.2])
    reached = np.zeros(3)
    for step in range(1, 41):
        reached = lagged(reached, np.ones(3), lag_share(lag_s, 0.005))
        np.testing.assert_allclose(reached, 1.0 - np.exp(-step * 0.005 / lag_s), rtol=1e-12)


def test_one_long_step_of_a_lag_is_two_short_ones() -> None:
    lag_s, start, command = np.array([0.03]), np.array([0.2]), np.array([-1.0])
    long = lagged(start, command, lag_share(lag_s, 0.01))
    half = lag_share(lag_s, 0.005)
    np.testing.assert_allclose(lagged(lagged(start, command, half), command, half), long, rtol=1e-14)


def test_no_lag_is_the_command_to_the_last_bit() -> None:
    command = np.array([0.1, 1 / 3, -math.pi])
    assert (lagged(np.array([7.0, -0.1, 1e9]), command, lag_share(np.zeros(3), 0.005)) == command).all()


def torque(asked: float, speed: ndarray, limit: float, no_load: float, stall: float = 1.0) -> ndarray:
    """Torque of a motor, including limits."""
    low, high, ends, most, wanted = (
        np.full_like(speed, each) for each in (-limit, limit, no_load, stall, asked)
    )
    line = motor_line(wanted, speed, low, high, ends, most)
    given: ndarray = np.clip(np.where(line.curved, line.push - line.slope * speed, asked), -limit, limit)
    return given


def test_torque_falls_linearly_with_speed() -> None:
    """10 Nm at rest, none at 4 rad/s, half of it at half of that; driven faster it brakes, with 10 from 8
    rad/s on.
    """
    speed = np.array([0.0, 1.0, 2.0, 4.0, 6.0, 8.0, 20.0])
    np.testing.assert_allclose(torque(99.0, speed, 10.0, 4.0), [10.0, 7.5, 5.0, 0.0, -5.0, -10.0, -10.0])
    np.testing.assert_allclose(torque(-99.0, speed, 10.0, 4.0), -10.0)  # against its motion: in full


def test_torque_below_the_curve_is_unchanged() -> None:
    """4 Nm up to 2.4 rad/s, where the curve gives 4; without a command it still brakes above the no-load
    speed.
    """
    np.testing.assert_allclose(torque(4.0, np.array([-3.0, 0.0, 2.3, 3.0]), 10.0, 4.0), [4.0, 4.0, 4.0, 2.5])
    np.testing.assert_allclose(torque(0.0, np.array([3.9, 5.0, -5.0]), 10.0, 4.0), [0.0, -2.5, 2.5])


def test_the_curve_is_cut_off_at_the_servos_limit() -> None:
    """Stall torque 1.5 times the limit of 80: it starts to fall at a third of 7.5 rad/s, and meets 0
    there.
    """
    given = torque(999.0, np.array([0.0, 2.5, 5.0, 7.5]), 80.0, 7.5, 1.5)
    np.testing.assert_allclose(given, [80.0, 80.0, 40.0, 0.0], atol=1e-12)


def test_both_directions_are_alike() -> None:
    speed = np.linspace(-9.0, 9.0, 19)
    np.testing.assert_allclose(torque(7.0, speed, 10.0, 4.0, 1.3), -torque(-7.0, -speed, 10.0, 4.0, 1.3))


@pytest.mark.parametrize("limit", [10.0, math.inf])
def test_without_a_curve_no_torque_is_touched(limit: float) -> None:
    one = np.ones(1)
    assert not motor_line(99.0 * one, 3.3 * one, -limit * one, limit * one, np.inf * one, one).curved.any()


def test_no_torque_within_the_backlash() -> None:
    """Backlash of 0.02 about a target of 1: no torque from 0.99 to 1.01, and a pull to the nearer edge
    outside.
    """
    position = np.array([0.9, 0.99, 1.0, 1.005, 1.01, 1.2])
    pulled = within_play(np.ones(6), position, np.full(6, 0.02))
    np.testing.assert_allclose(pulled - position, [0.09, 0.0, 0.0, 0.0, 0.0, -0.19], atol=1e-15)
    assert (within_play(np.ones(6), position, np.zeros(6)) == 1.0).all()
