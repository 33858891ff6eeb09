"""Frames: worked out by hand, and as matrices for any attitude."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from robo_rl.core.flight.frames import (
    quat_product,
    rotation_of,
    swap_attitude,
    swap_body,
    swap_world,
    wxyz_of,
    xyzw_of,
)

NORTH_EAST_DOWN = np.array([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, -1.0]])
FORWARD_RIGHT_DOWN = np.diag([1.0, -1.0, -1.0])
quaternions = (
    st.lists(st.floats(-1.0, 1.0), min_size=4, max_size=4)
    .map(np.array)
    .filter(lambda q: np.linalg.norm(q) > 0.1)
    .map(lambda q: q / np.linalg.norm(q))
)


def test_vectors_by_hand() -> None:
    """1 m north, 2 m east, 3 m down is 2 m east, 1 m north, 3 m below; a roll to the right stays one."""
    assert swap_world(np.array([1.0, 2.0, 3.0])).tolist() == [2.0, 1.0, -3.0]
    assert swap_body(np.array([1.0, 2.0, 3.0])).tolist() == [1.0, -2.0, -3.0]
    many = np.arange(12.0).reshape(2, 2, 3)
    assert np.array_equal(swap_world(swap_world(many)), many)


def test_attitudes_by_hand() -> None:
    """Level and nose to the north in NED is a quarter turn to the left of east in ENU; nose to the east is
    none.
    """
    s = np.sqrt(0.5)
    north = swap_attitude(np.array([1.0, 0.0, 0.0, 0.0]))
    assert np.abs(north) == pytest.approx(np.array([s, 0.0, 0.0, s]))
    assert rotation_of(north) @ np.array([1.0, 0.0, 0.0]) == pytest.approx(
        np.array([0.0, 1.0, 0.0]), abs=1e-12
    )
    east = swap_attitude(np.array([s, 0.0, 0.0, s]))  # a quarter turn to the right, seen from above
    assert np.abs(east) == pytest.approx(np.array([1.0, 0.0, 0.0, 0.0]))


@settings(deadline=None)  # the first call may wait for other programs
@given(quaternions)
def test_attitudes_are_changes_of_basis(quat: np.ndarray) -> None:
    """R' = P R F with the permutations of both frames; twice is the same attitude; the order of ROS and
    back.
    """
    expected = NORTH_EAST_DOWN @ rotation_of(quat) @ FORWARD_RIGHT_DOWN
    np.testing.assert_allclose(rotation_of(swap_attitude(quat)), expected, atol=1e-12)
    np.testing.assert_allclose(rotation_of(swap_attitude(swap_attitude(quat))), rotation_of(quat), atol=1e-12)
    assert np.array_equal(wxyz_of(xyzw_of(quat)), quat)


@settings(deadline=None)
@given(quaternions, quaternions)
def test_products_are_products_of_matrices(a: np.ndarray, b: np.ndarray) -> None:
    np.testing.assert_allclose(rotation_of(quat_product(a, b)), rotation_of(a) @ rotation_of(b), atol=1e-12)
