"""A setting of a wrong type in a driver's file is refused in one sentence, before anything connects."""

from __future__ import annotations

import inspect
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hardware.driver import DRIVERS, IN_PROCESS, check_settings, make_driver, open_driver
from hardware.setting_types import wrong_type
from robo_rl.core.errors import ConfigError
from robo_rl.core.registry import lookup

NEEDED: dict[str, dict[str, Any]] = {
    "ur": {"host": "127.0.0.1"},
    "xarm": {"host": "127.0.0.1"},
    "crazyflie": {"uri": "radio://0/80"},
    "px4": {},
    "px4_topics": {},
    "crazyswarm2": {"name": "cf1"},
}


def made(name: str, /, **changed: Any) -> Any:
    return make_driver(name, NEEDED[name] | changed)


@pytest.mark.parametrize("name", ["px4", "px4_topics", "crazyflie", "crazyswarm2"])
@pytest.mark.parametrize("word", ["n", "N", "false", "no", 0, None])
def test_only_true_arms_a_quadcopter(name: str, word: Any) -> None:
    """In YAML 1.2 and here, `arm: n` is the text "n", which Python counts as true."""
    with pytest.raises(ConfigError, match=f"arm={word!r} of the driver '{name}': expected true or false"):
        made(name, arm=word)
    made(name, arm=False)


@pytest.mark.parametrize(
    ("name", "key", "value", "said"),
    [
        ("ur", "rate_hz", "100", "expected a finite number, without quotes"),
        ("ur", "rate_hz", True, "expected a finite number"),
        ("ur", "rate_hz", math.nan, "expected a finite number"),
        ("ur", "rate_hz", 0, "is too slow"),
        ("ur", "rate_hz", -5, "is too slow"),
        ("ur", "rate_hz", None, "expected a finite number"),
        ("ur", "gain", "300", "expected a finite number"),
        ("ur", "model", 5, "expected a text, in quotes if it could be read as a number or nothing"),
        ("ur", "max_velocity_rad_s", math.inf, "expected a finite number, without quotes or nothing"),
        ("xarm", "joints", 7.0, "expected a whole number"),
        ("px4", "baud", "abc", "expected a whole number"),
        ("px4", "check_failsafe", "no", "expected true or false"),
        ("px4_topics", "system", "1", "expected a whole number"),
        ("crazyswarm2", "name", 231, "expected a text, in quotes"),
        ("crazyflie", "thrust_high", "0.8", "expected a finite number"),
    ],
)
def test_wrong_types_are_refused(name: str, key: str, value: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=f"^{key}=.* of the driver '{name}'.*{said}"):
        check_settings(name, NEEDED[name] | {key: value})


def test_right_types_are_accepted() -> None:
    made("ur", rate_hz=100, gain=300, model=None, max_velocity_rad_s=1)
    made("xarm", joints=6, rate_hz=50.0)
    made("px4", baud=57600, check_failsafe=False, max_rate_rad_s=2)


VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-9, 99), st.floats(), st.text(max_size=4),
    st.lists(st.integers(0, 3), max_size=2), st.just({"a": 1}),
)  # fmt: skip


@settings(max_examples=300, deadline=None, derandomize=True, database=None)
@given(st.data())
def test_any_value_makes_a_driver_or_a_sentence(data: st.DataObject) -> None:
    """No file ends the guard with a traceback: a driver is made, or ConfigError is raised."""
    name = data.draw(st.sampled_from([name for name in DRIVERS if name not in IN_PROCESS]))
    keys = list(inspect.signature(lookup("driver", DRIVERS, name)).parameters)
    changed = {key: data.draw(VALUES) for key in data.draw(st.lists(st.sampled_from(keys), unique=True))}
    try:
        made(name, **changed)
    except ConfigError as error:
        assert str(error).endswith(".")  # noqa: PT017 any of many messages


def test_guard_tells_of_settings_that_its_driver_cannot_use() -> None:
    """Not that its process has ended, which sends users to a robot that was never connected."""
    for name, wrong in (("ur", {"rate_hz": "100"}), ("px4", {"arm": "n"})):
        guarded = open_driver(name, NEEDED[name] | wrong).driver
        with pytest.raises(ConfigError, match="of the driver"):
            guarded.connect()
        guarded.close()


def test_types_that_are_not_plain_are_left_to_the_driver() -> None:
    assert not wrong_type(3, dict[str, int])
    assert not wrong_type(object(), object)
    assert wrong_type("3", int | None).endswith("or nothing")
