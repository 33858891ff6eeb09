"""Normalisation of observations."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from robo_rl.core.errors import CheckpointError
from robo_rl.core.spec import ActionSpec
from robo_rl.data.normalizer import Normalizer, used_range


def test_the_seen_range_becomes_minus_one_to_one() -> None:
    """[2, 6] maps to [-1, 1], and values far outside are clamped."""
    normalizer = Normalizer.fit({"state": torch.tensor([[2.0], [6.0]])}, clip=5.0)
    out = normalizer.normalize({"state": torch.tensor([[2.0], [4.0], [6.0], [1000.0]])})["state"]
    assert out.flatten().tolist() == [-1.0, 0.0, 1.0, 5.0]


def test_constant_dimensions_are_only_centred() -> None:
    """Division by a tiny range would amplify sensor noise."""
    normalizer = Normalizer.fit({"state": torch.full((10, 1), 3.0)})
    assert normalizer.normalize({"state": torch.tensor([[3.01]])})["state"].item() == pytest.approx(
        0.01, abs=1e-5
    )


def test_a_floor_widens_a_narrow_range_and_no_other() -> None:
    """Ranges of 2 cm and 40 cm with a floor of 10 cm: 1 cm from the centre is 0.2 of half the floor and
    0.05 of half of 40 cm; a constant dimension is still only centred.
    """
    data = torch.tensor([[0.0, 0.0, 0.7], [0.02, 0.4, 0.7]])
    normalizer = Normalizer.fit({"state": data}, floor=0.1)
    out = normalizer.normalize({"state": data.mean(0, keepdim=True) + 0.01})["state"]
    assert out.flatten().tolist() == pytest.approx([0.2, 0.05, 0.01], abs=1e-5)


@pytest.mark.parametrize("dtype", ["float64", "float16", "uint8", "uint16", "int32", "int64", "bool"])
def test_numbers_of_every_type_become_float32(dtype: str) -> None:
    """robosuite records float64, other sources integers and flags; networks compute in float32."""
    data = {"state": torch.from_numpy(np.array([[0, 1], [1, 0]]).astype(dtype))}
    out = Normalizer.fit(data).normalize(data)["state"]
    assert out.dtype == torch.float32
    assert out.tolist() == [[-1.0, 1.0], [1.0, -1.0]]


def test_the_centre_of_large_integers_does_not_overflow() -> None:
    """2.0e9 + 2.1e9 exceeds int32, whose sum would be negative."""
    data = {"state": torch.tensor([[2_000_000_000], [2_100_000_000]], dtype=torch.int32)}
    out = Normalizer.fit(data).normalize(data)["state"]
    assert out.flatten().tolist() == pytest.approx([-1.0, 1.0], abs=1e-4)


def test_other_keys_pass_and_missing_ones_are_named() -> None:
    """Images are not normalised; a missing state is an error, not zeros."""
    normalizer = Normalizer({"state": (1,)})
    image = torch.zeros(1, 2, 2, 3, dtype=torch.uint8)
    assert normalizer.normalize({"state": torch.zeros(1, 1), "image.top": image})["image.top"] is image
    with pytest.raises(CheckpointError, match="'state'"):
        normalizer.normalize({"image.top": image})


def test_an_observation_of_another_shape_is_refused() -> None:
    """Broadcasting would accept a scalar state and give wrong values."""
    normalizer = Normalizer({"state": (3,)})
    assert normalizer.normalize({"state": torch.zeros(5, 2, 3)})["state"].shape == (5, 2, 3)
    for wrong in (torch.zeros(5, 1), torch.zeros(5, 4), torch.zeros(())):
        with pytest.raises(CheckpointError, match=r"shape \(3,\)"):
            normalizer.normalize({"state": wrong})


@given(st.lists(st.floats(-1e3, 1e3, width=32), min_size=2, max_size=20))
def test_fitted_data_map_into_the_unit_box(values: list[float]) -> None:
    """Fitted data map into [-1, 1], except for nearly constant dimensions, which are only centred."""
    data = torch.tensor(values).unsqueeze(1)
    out = Normalizer.fit({"state": data}).normalize({"state": data})["state"]
    assert out.abs().max() <= 1.0 + 1e-4


def test_statistics_are_in_the_state_dict() -> None:
    """Statistics are buffers, so every checkpoint holds them."""
    fitted, empty = Normalizer.fit({"state": torch.tensor([[1.0], [5.0]])}), Normalizer({"state": (1,)})
    empty.load_state_dict(fitted.state_dict())
    assert [float(x) for x in empty.statistics()["state"]] == [3.0, 2.0]


def test_the_range_of_actions_has_a_margin_inside_the_limits() -> None:
    """Moves of 0 to 1 get 0.1 at both ends, a joint at rest 1 % of its limits; none exceeds the limits."""
    limits = ActionSpec((-5.0, -5.0, -1.0), (5.0, 5.0, 1.0), "rad: a, b, c")
    actions = np.array([[0.0, 2.0, -1.0], [1.0, 2.0, 7.0]], np.float32)
    found = used_range(limits, actions)
    assert found.low == pytest.approx((-0.1, 1.9, -1.0))
    assert found.high == pytest.approx((1.1, 2.1, 1.0))
    assert found.unit == limits.unit
