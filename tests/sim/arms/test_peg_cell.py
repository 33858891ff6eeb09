"""Places of the block of the recording cell."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("mujoco", reason="the simulated arm needs the extra sim: pip install '.[sim]'")
from sim.arms.arm6.peg_cell import FIELD_M, MIDDLE_M, PegCell


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_ten_places_cover_the_field(seed: int) -> None:
    """Each quarter has one of ten or more, no two are near each other, and a seed repeats them."""

    def places() -> np.ndarray:
        cell, found = PegCell(seed), []
        for _ in range(10):
            found.append([shape["pos_m"][:2] for shape in cell.shapes() if shape["kind"] == "box"])
            cell.reset()
        return np.mean(found, axis=1) - MIDDLE_M  # (10, 2), of the four walls

    shift_m = places()
    assert np.abs(shift_m).max() <= FIELD_M + 1e-4
    quarters = (shift_m > 0.0) @ [1, 2]
    assert np.bincount(quarters, minlength=4).min() >= 1
    apart_m = np.linalg.norm(shift_m[:, None] - shift_m, axis=2) + np.eye(10)
    assert apart_m.min() > 0.2 * FIELD_M
    np.testing.assert_array_equal(shift_m, places())
