"""Flight envelopes as a bundle could ask for them, and what has to be left of them."""

from __future__ import annotations

import json
import math
import random
from typing import Any

from robo_rl.core.errors import ConfigError
from robo_rl.core.flight.envelope import CraftLimits, FlightEnvelope

WRONG = (
    math.nan,
    math.inf,
    -math.inf,
    1e308,
    -1e308,
    0.0,
    -1.0,
    4.0,
    50.0,
    1e-310,
    "abc",
    None,
    True,
    [],
    {},
    [1.0],
)
# The most that a craft without settings of its own allows (docs/safety.md); upside down: beyond a quarter
# turn.
MOST = {"tilt_rad": 2.1, "rate_rad_s": 40.0, "speed_m_s": 5.0, "descend_m_s": 1.0, "cut_height_m": 0.1}
FENCE_M, UPRIGHT_RAD = 10.0, math.pi / 2


def hostile_envelope(rng: random.Random) -> FlightEnvelope:
    """An accepted envelope. Checks that it limits, and that a refused one is refused with a sentence."""
    while True:
        asked = _asked(rng)
        try:
            envelope = FlightEnvelope.from_json(json.loads(json.dumps(asked))).within(CraftLimits())
        except ConfigError as refused:
            if len(str(refused)) < 20:
                raise AssertionError("an envelope is refused without a sentence") from refused
            continue
        _check(envelope)
        return envelope


def _asked(rng: random.Random) -> dict[str, Any]:
    tilt = rng.uniform(0.2, 2.2)
    low = [rng.uniform(-12.0, 1.0) for _ in range(3)]
    asked: dict[str, Any] = {
        "tilt_rad": tilt,
        "rate_rad_s": rng.choice((1.0, 8.0, 60.0)),
        "speed_m_s": rng.choice((0.5, 2.0, 9.0)),
        "fence_low_m": low,
        "fence_high_m": [x + rng.choice((0.5, 2.0, 30.0)) for x in low],
        "descend_m_s": rng.choice((0.1, 0.3, 2.0)),
        "cut_height_m": rng.choice((0.0, 0.05, 0.3)),
        "cut_tilt_rad": rng.choice((tilt, 1.05 * tilt, 2.1, 3.0)),
    }
    while rng.random() < 0.3:
        key = rng.choice(list(asked))
        if key.startswith("fence") and isinstance(asked[key], list) and asked[key] and rng.random() < 0.7:
            asked[key][rng.randrange(len(asked[key]))] = rng.choice(WRONG)
        else:
            asked[key] = rng.choice(WRONG)
    return asked


def _check(envelope: FlightEnvelope) -> None:
    for key, most in MOST.items():
        value = getattr(envelope, key)
        assert type(value) in (int, float), f"a bundle's {key} is no number"
        assert 0.0 <= value <= most, f"a bundle asks for {key} beyond the craft's limits"
    assert UPRIGHT_RAD <= envelope.cut_tilt_rad <= math.pi + 1e-5, (
        "a bundle cuts the motors of an upright craft"
    )
    for corner in (envelope.fence_low_m, envelope.fence_high_m):
        assert len(corner) == 3, "a fence without three sides"
        assert all(type(x) in (int, float) and abs(x) <= FENCE_M for x in corner), (
            "a fence beyond the craft's limits"
        )
