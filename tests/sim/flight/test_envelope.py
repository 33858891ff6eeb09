"""The envelope contains every successful flight, with a margin, and ignores the others."""

from __future__ import annotations

import math

import pytest
import torch

from sim.flight.envelope import envelope_of, tilt
from sim.flight.trial import Trial


def test_tilt_of_known_attitudes() -> None:
    """Level, yawed by half a turn, rolled by a quarter, upside down."""
    quarter = math.sqrt(0.5)
    quats = torch.tensor(
        [[1.0, 0, 0, 0], [0, 0, 0, 1.0], [quarter, quarter, 0, 0], [0, 0, 1.0, 0]]
    ).T.unsqueeze(0)
    torch.testing.assert_close(tilt(quats), torch.tensor([[0.0, 0.0, math.pi / 2, math.pi]]))


def _trial(held: list[bool]) -> Trial:
    """Two drones, two steps: the first moves by 2 m along x at 4 m/s, turning at 5 rad/s; the second flies
    far away.
    """
    position = torch.tensor([[[0.0, 9.0], [0.0, 9.0], [1.0, 9.0]], [[2.0, 99.0], [0.0, 9.0], [1.0, 9.0]]])
    level = torch.tensor([1.0, 0.0, 0.0, 0.0]).view(1, 4, 1).expand(2, 4, 2)
    velocity, rate = torch.zeros(2, 3, 2), torch.zeros(2, 3, 2)
    velocity[:, 0, 0], velocity[:, 0, 1], rate[:, 2, 0] = 4.0, 50.0, 5.0
    success = torch.tensor(held)
    return Trial(
        position, level, velocity, rate, torch.zeros(2, 4, 2), position, torch.zeros(2), ~success, success
    )


def test_envelope_is_the_successful_range_plus_a_quarter() -> None:
    """x: 0 ... 2 m is middle 1, half 1 * 1.25; y and z did not move and get 0.3 m; level flight gets 0.35
    rad.
    """
    envelope = envelope_of(_trial([True, False]))
    assert envelope is not None
    assert envelope.fence_low_m == pytest.approx((-0.25, -0.3, 0.7))
    assert envelope.fence_high_m == pytest.approx((2.25, 0.3, 1.3))
    assert envelope.speed_m_s == pytest.approx(5.0)
    assert envelope.rate_rad_s == pytest.approx(6.25)
    assert envelope.tilt_rad == pytest.approx(0.35)


def test_a_success_that_ends_later_counts_while_it_flies() -> None:
    """Completed laps count if the flight ends afterwards; its rows are NaN from then on."""
    whole = _trial([True, False])
    longer = [torch.cat([rows, torch.full_like(rows[:1], torch.nan)]) for rows in (
        whole.position_m, whole.quat_wxyz, whole.velocity_m_s, whole.rate_rad_s, whole.rotor, whole.goal_m
    )]  # fmt: skip
    ended = Trial(*longer, whole.error_m, torch.tensor([True, True]), whole.held)
    assert envelope_of(ended) == envelope_of(whole)


def test_a_wild_success_gets_the_largest_envelope_of_a_bundle() -> None:
    """85 rad/s with its margin would be 106 rad/s, and a bundle holds at most 100; 90 m/s likewise."""
    wild = _trial([True, False])
    wild.rate_rad_s[0, 2, 0], wild.velocity_m_s[0, 0, 0] = 85.0, 90.0
    envelope = envelope_of(wild)
    assert envelope is not None
    assert (envelope.rate_rad_s, envelope.speed_m_s) == (100.0, 100.0)


def test_no_envelope_without_a_success() -> None:
    assert envelope_of(_trial([False, False])) is None
