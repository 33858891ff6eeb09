"""The flight envelope survives JSON and refuses impossible values."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from robo_rl.core.errors import ConfigError
from robo_rl.core.flight.envelope import CraftLimits, FlightEnvelope

BOX = {"fence_low_m": (-1.0, -1.0, 0.0), "fence_high_m": (1.0, 1.0, 2.0)}
GOOD: dict[str, Any] = {"tilt_rad": 0.5, "rate_rad_s": 6.0, "speed_m_s": 2.0, **BOX}


def test_json_round_trip() -> None:
    envelope = FlightEnvelope(**GOOD)
    assert FlightEnvelope.from_json(json.loads(json.dumps(envelope.to_json()))) == envelope


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"tilt_rad": 0.0}, "tilt_rad = 0.0"),
        ({"speed_m_s": math.nan}, "speed_m_s = nan"),
        ({"rate_rad_s": math.inf}, "rate_rad_s = inf"),
        ({"cut_height_m": -0.1}, "cut_height_m = -0.1"),
        ({"tilt_rad": 0.2, "cut_tilt_rad": 0.3}, "cut_tilt_rad = 0.3 .*1.5708 to 3.142"),
        ({"tilt_rad": 2.5}, "exceeds cut_tilt_rad = 2.1"),
        ({"fence_high_m": (1.0, -1.0, 2.0)}, "empty in y: it runs from -1.0 to -1.0 m"),
        ({"fence_low_m": (-1.0, -1.0, math.nan)}, "fence_low_m = .*three numbers within 10000 m"),
    ],
)
def test_an_impossible_envelope_is_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        FlightEnvelope(**(GOOD | change))


def test_missing_and_unknown_keys_are_named() -> None:
    data = FlightEnvelope(**GOOD).to_json()
    del data["tilt_rad"]
    with pytest.raises(ConfigError, match="missing: tilt_rad, unknown: ceiling_m"):
        FlightEnvelope.from_json(data | {"ceiling_m": 3.0})


def test_craft_limits_cap_the_envelope_of_a_bundle() -> None:
    """Each number is the smaller of both; the fence's cap is centred on the task's origin."""
    asked = FlightEnvelope(
        2.0, 90.0, 50.0, (-100.0, -0.5, -3.0), (100.0, 0.5, 3.0), descend_m_s=3.0, cut_height_m=0.3
    )
    allowed = asked.within(CraftLimits(tilt_rad=0.8, fence_m=(2.0, 2.0, 1.5)))
    assert (allowed.tilt_rad, allowed.rate_rad_s, allowed.speed_m_s) == (0.8, 40.0, 5.0)
    assert (allowed.descend_m_s, allowed.cut_height_m) == (1.0, 0.1)
    assert (allowed.fence_low_m, allowed.fence_high_m) == ((-2.0, -0.5, -1.5), (2.0, 0.5, 1.5))
    small = FlightEnvelope(0.3, 3.0, 0.5, (-0.3,) * 3, (0.3,) * 3)
    assert small.within(CraftLimits()) == small
    with pytest.raises(ConfigError, match="geofence is empty in x"):
        FlightEnvelope(0.3, 3.0, 0.5, (5.0, -1.0, -1.0), (6.0, 1.0, 1.0)).within(
            CraftLimits(fence_m=(2.0, 2.0, 2.0))
        )


@pytest.mark.parametrize(
    "change",
    [
        {"tilt_rad": 4.0},
        {"speed_m_s": math.inf},
        {"fence_m": (1.0, 0.0, 1.0)},
        pytest.param({"fence_m": (1.0, 1.0)}, marks=pytest.mark.wrong_types),
    ],
)
def test_useless_craft_limits_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="craft's limits"):
        CraftLimits(**change)
