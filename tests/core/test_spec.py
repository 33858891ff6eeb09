"""Contracts of environments: action units and limits, and the round trip through JSON."""

from __future__ import annotations

import json

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from robo_rl.core.errors import ConfigError
from robo_rl.core.spec import ActionSpec, ArraySpec, EnvSpec

PIXELS = ActionSpec((0.0, -1.0), (512.0, 3.0), "px")


def test_limits_become_minus_one_and_one() -> None:
    """Hand-worked: the middle of [0, 512] is 256, of [-1, 3] it is 1."""
    physical = torch.tensor([[0.0, -1.0], [512.0, 3.0], [256.0, 1.0]])
    expected = torch.tensor([[-1.0, -1.0], [1.0, 1.0], [0.0, 0.0]])
    torch.testing.assert_close(PIXELS.normalize(physical), expected)
    torch.testing.assert_close(PIXELS.denormalize(expected), physical)


@given(st.lists(st.floats(allow_nan=False, width=32), min_size=2, max_size=2))
def test_actions_stay_within_the_limits(action: list[float]) -> None:
    """Any output of a policy, also infinity, gives an action within the limits."""
    out = PIXELS.denormalize(torch.tensor(action))
    assert (out >= torch.tensor(PIXELS.low)).all()
    assert (out <= torch.tensor(PIXELS.high)).all()


def test_unit_limits_pass_bit_for_bit() -> None:
    """Rounding would violate "a zero residual is the base" for environments with limits [-1, 1]."""
    spec, action = ActionSpec((-1.0,), (1.0,)), torch.tensor([[0.1], [1 / 3], [-0.7]])
    assert torch.equal(spec.denormalize(action), action)


@pytest.mark.parametrize(
    ("low", "high"), [((0.0,), (0.0,)), ((1.0,), (0.0,)), ((0.0, 0.0), (1.0,)), ((float("nan"),), (1.0,))]
)
def test_invalid_limits_are_refused(low: tuple[float, ...], high: tuple[float, ...]) -> None:
    """Zero width would divide by zero in every policy."""
    with pytest.raises(ConfigError, match="low < high"):
        ActionSpec(low, high)


def test_json_round_trip() -> None:
    """Datasets and bundles carry the contract as JSON text."""
    spec = EnvSpec(
        "arm6/reach",
        {"state": ArraySpec((3,), unit="m"), "image.top": ArraySpec((8, 8, 3), "uint8")},
        PIXELS,
        50,
        10.0,
    )
    assert EnvSpec.from_json(json.loads(json.dumps(spec.to_json()))) == spec


@given(
    st.tuples(st.floats(-1e3, 1e3, width=32), st.floats(-1e3, 1e3, width=32)).filter(
        lambda pair: pair[0] < pair[1]
    ),
    st.floats(-1.5, 1.5, width=32),
)
def test_rounding_stays_within_the_limits(limits: tuple[float, float], action: float) -> None:
    """low + 1 * (high - low) may be one float above high, which a driver would refuse."""
    spec = ActionSpec((limits[0],), (limits[1],))
    out = spec.denormalize(torch.tensor([action]))
    assert torch.tensor(limits[0]) <= out <= torch.tensor(limits[1])


@pytest.mark.parametrize("high", [float("inf"), 1e400])
def test_open_limits_are_refused(high: float) -> None:
    """Nothing can be mapped to [-1, 1] from an infinite range."""
    with pytest.raises(ConfigError, match="finite"):
        ActionSpec((0.0,), (high,))
