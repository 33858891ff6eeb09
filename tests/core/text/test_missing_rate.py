"""Which environments are reported to give no control rate."""

from __future__ import annotations

import pytest

from robo_rl.core.text.missing_rate import missing_rate


@pytest.mark.parametrize(
    ("name", "rate_hz", "said"),
    [
        ("gym/my_envs:Mine-v0", 1.0, True),
        ("gym/Pendulum-v1", 30.0, False),
        ("arm/lift", 1.0, False),
        ("robot/my_arm", 1.0, False),  # its description gives the rate
    ],
)
def test_a_rate_that_no_one_gave_is_reported(name: str, rate_hz: float, said: bool) -> None:
    assert ('metadata["render_fps"]' in missing_rate(name, rate_hz)) == said
