"""Contracts of environments: action units and limits, and the round trip through JSON."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from policies.tuned.direct import DirectPolicy
from robo_rl.core.errors import ConfigError
from robo_rl.core.spec import ActionSpec, ArraySpec, EnvSpec, image_fault, sense_of

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


@pytest.mark.parametrize(("low", "high"), [((0.0,), (0.0,)), ((1.0,), (0.0,)), ((float("nan"),), (1.0,))])
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


@pytest.mark.wrong_types
def test_any_sequence_of_numbers_becomes_a_tuple() -> None:
    """`gymnasium.spaces.Box.low` is a NumPy array; a contract is compared, hashed and written as JSON."""
    limits = ActionSpec(-np.ones(2, np.float32), [np.int64(1), 2])  # type: ignore[arg-type]
    assert limits == ActionSpec((-1.0, -1.0), (1.0, 2.0))
    assert ActionSpec(torch.zeros(1), torch.ones(1)).high == (1.0,)  # type: ignore[arg-type]
    size = ArraySpec([np.int64(4)])  # type: ignore[arg-type]
    spec = EnvSpec("a/b", {"state": size}, limits, np.int64(9), np.float32(20.0))  # type: ignore[arg-type]
    assert EnvSpec.from_json(json.loads(json.dumps(spec.to_json()))) == spec


@pytest.mark.wrong_types
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: EnvSpec("a/b", {}, PIXELS, 0, 10.0), "max_episode_steps of a contract is 0"),
        (lambda: EnvSpec("a/b", {}, PIXELS, 2.5, 10.0), "max_episode_steps of a contract is 2.5"),  # type: ignore[arg-type]
        (lambda: EnvSpec("a/b", {}, PIXELS, 5, "10"), "control_hz of a contract is '10'"),  # type: ignore[arg-type]
        (lambda: EnvSpec(None, {}, PIXELS, 5, 10.0), "name of a contract is None"),  # type: ignore[arg-type]
        (lambda: EnvSpec("a/b", {3: PIXELS}, PIXELS, 5, 10.0), "obs of a contract is 3"),  # type: ignore[dict-item]
        (
            lambda: EnvSpec("a/b", {"state": (6,)}, PIXELS, 5, 10.0),  # type: ignore[dict-item]
            r"'state' .* is \(6,\), .* ArraySpec\(\(6,\)\)",
        ),
        (lambda: ArraySpec((0,)), r"the shape \(0,\) of a contract is 0"),
        (lambda: ArraySpec(3), "shape 3 of a contract is no sequence"),  # type: ignore[arg-type]
        (lambda: ArraySpec((3,), np.uint8), "dtype of a contract is"),  # type: ignore[arg-type]
        (lambda: ActionSpec(-1.0, 1.0), "low of the action is -1.0, one number per dimension"),  # type: ignore[arg-type]
        (lambda: ActionSpec(("0",), (1.0,)), "low of the action of a contract is '0'"),  # type: ignore[arg-type]
        (lambda: ActionSpec((0.0, 0.0, 0.0), (1.0, 1.0)), "found 3 in low and 2 in high"),
        (lambda: ActionSpec((0.0,), (1.0,), None), "unit of a contract is None"),  # type: ignore[arg-type]
    ],
)
def test_a_contract_is_checked_when_it_is_made(make: Callable[[], object], message: str) -> None:
    """What `from_json` would refuse: a dataset with such a contract could be written, but not read."""
    with pytest.raises(ConfigError, match=message):
        make()


def test_only_uint8_with_the_axes_of_a_picture_is_one() -> None:
    """A vector of uint8, also one that was bool, is a state; a picture of a wrong shape is still refused."""
    assert sense_of("touching", ArraySpec((2,), "uint8")) == "state"
    assert sense_of("top", ArraySpec((8, 8, 3), "uint8")) == "image"
    assert sense_of("image.top", ArraySpec((8, 8), "uint8")) == "image"
    assert sense_of("segmentation.top", ArraySpec((8, 8, 1), "uint8")) == "segmentation"


@pytest.mark.parametrize("dtype", ["uint16", "int32", "uint8"])
def test_depths_of_whole_numbers_are_a_fault(dtype: str) -> None:
    """They are millimetres, and clipped at 2 m every pixel would be the same."""
    assert "must be float32 in metres: divide millimetres by 1000" in image_fault(
        "depth.top", ArraySpec((8, 8), dtype)
    )
    assert not image_fault("depth.top", ArraySpec((8, 8)))
    assert not image_fault("touching", ArraySpec((8,), dtype))


def test_policies_do_not_see_privileged_observations() -> None:
    """What only a simulator knows leaves the contract of policies; another contract stays the same object."""
    obs = {"state": ArraySpec((2,)), "privileged.task": ArraySpec((3,))}
    spec = EnvSpec("sim/task", obs, ActionSpec((-1.0,), (1.0,)), 100, 20.0)
    assert list(spec.for_policies().obs) == ["state"]
    assert spec.for_policies().for_policies() == spec.for_policies()
    assert sense_of("privileged.task", spec.obs["privileged.task"]) == "privileged"
    assert DirectPolicy(spec).normalizer.keys == ("state",)


@pytest.mark.parametrize(
    "make",
    [
        lambda unit: ActionSpec((-1.0,) * 3, (1.0,) * 3, unit),
        lambda unit: ArraySpec((3,), unit=unit),
    ],
)
def test_unit_names_all_numbers_or_none(make: Callable[[str], object]) -> None:
    """A robot's program would otherwise find out only when it starts to move."""
    free = ("rad", "", "motor command: -1 stopped, 1 full speed", "rad: a, b, fingers: -1 closed, 1 open")
    for unit in ("rad: a, b, c", "rad: a, b; m: x", *free):
        make(unit)
    for unit in ("rad: a, b", "rad: a, b, c; m: x"):
        names = unit.count(",") + 2 if ";" in unit else 2
        with pytest.raises(ConfigError, match=f"'{unit}' names {names} numbers, but there are 3"):
            make(unit)


@pytest.mark.parametrize(("name", "simulated"), [("arm/lift", True), ("robot/lab", False), ("my_arm", False)])
def test_a_name_without_a_suite_is_a_robot(name: str, simulated: bool) -> None:
    """A dataset of one's own is easily called so; its policy is exported, and never sent to a simulator."""
    action = ActionSpec((-1.0,), (1.0,), "rad")
    assert EnvSpec(name, {"state": ArraySpec((1,), "float32")}, action, 10, 20.0).simulated is simulated
