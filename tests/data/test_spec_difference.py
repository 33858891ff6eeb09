"""Differences of contracts as they appear in messages."""

from __future__ import annotations

from dataclasses import replace

from robo_rl.core.spec import ActionSpec, ArraySpec, EnvSpec
from robo_rl.data.spec_difference import differences

REACH = EnvSpec("arm6/reach", {"state": ArraySpec((15,))}, ActionSpec((-1.0,), (1.0,), "rad"), 100, 50.0)


def test_equal_contracts_have_no_difference() -> None:
    """An empty text."""
    assert differences(REACH, replace(REACH)) == ""


def test_each_difference_has_its_key_and_both_values() -> None:
    """Found first, then expected; a missing observation is none."""
    other = replace(
        REACH, name="arm/lift", control_hz=20.0, obs={"image.view": ArraySpec((84, 84, 3), "uint8")}
    )
    assert differences(other, REACH) == (
        "name: arm/lift, expected arm6/reach; control_hz: 20, expected 50; "
        "obs.image.view: uint8 (84, 84, 3), expected none; obs.state: none, expected float32 (15,)"
    )


def test_many_differences_are_counted() -> None:
    """A message stays one sentence."""
    other = EnvSpec("a", {}, ActionSpec((0.0, 0.0), (1.0, 1.0)), 1, 1.0)
    assert differences(other, REACH).endswith("; and 2 more")
    metres = replace(REACH, obs={"state": ArraySpec((15,), unit="m")})
    assert differences(metres, REACH) == "obs.state: float32 (15,) 'm', expected float32 (15,) ''"
    assert "action.low: [-2.0], expected [-1.0]" in differences(
        replace(REACH, action=ActionSpec((-2.0,), (1.0,), "rad")), REACH
    )
